"""What a run takes of the machine, and how all of it is given back, whoever gives it back.

A run claims a number by locking a file; with the number go its subnet and the names of its bridge,
links and namespaces.  The lock ends with the process that holds it, so what a claim that can be
locked has left behind belongs to nobody, and is swept away.
Invariant OnlyOurs: nothing is ended, unmounted or deleted but what bears the run's own name: a
process by its environment, a mount by the run's directory, links and namespaces by the number.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from ottla.jepsen.processes.commands import CommandError, run

RUN_VARIABLE = "OTTLA_JEPSEN_RUN"
"""In the environment of every process of a run: by it they are found again."""

CLAIMS_VARIABLE = "OTTLA_JEPSEN_CLAIMS"
"""Says where claims are kept instead; runs that do not share the place do not sweep each other."""

NUMBERS = range(1, 251)
"""The third byte of the subnets."""

END_TIMEOUT_S = 10.0
"""A killed process that is not gone by then hangs in the kernel."""

UNMOUNT_TIMEOUT_S = 5.0
GONE_AFTER_S = 0.02
LOOKS = 3
"""A process that has just begun its program shows no environment for a moment."""

ALL_IS_WELL = b"."
"""What a guardian is told by a run that has given everything back."""


@dataclass(frozen=True, slots=True)
class MachineClaim:
    """One run's place on the machine."""

    number: int
    run_id: str
    """Unlike the number never used again."""
    directory: str
    """Below it are all its files and mounts."""

    @property
    def prefix(self) -> str:
        """What the names of its links begin with; an interface's name has 15 characters at most."""
        return f"ottj{self.number}"

    @property
    def bridge(self) -> str:
        """The bridge to which all nodes are tied."""
        return self.prefix

    @property
    def sink(self) -> str:
        """A bridge to which nobody is tied: what is sent there is gone."""
        return f"{self.prefix}x"

    def link_of(self, node: str) -> str:
        """Return the name of our end of a node's link."""
        return f"{self.prefix}{node}"

    def namespace_of(self, node: str) -> str:
        """Return the name of a node's network namespace."""
        return f"{self.prefix}-{node}"

    def address(self, host: int) -> str:
        """Return an address of the run's subnet, a /24."""
        return f"10.231.{self.number}.{host}"


def claims_directory() -> Path:
    """Return where claims of this user are kept."""
    if CLAIMS_VARIABLE in os.environ:
        return Path(os.environ[CLAIMS_VARIABLE])
    if os.geteuid() == 0:
        return Path("/run/ottla-jepsen")
    return Path(tempfile.gettempdir()) / f"ottla-jepsen-{os.geteuid()}"


@contextmanager
def claimed(directory: Path) -> Iterator[MachineClaim]:
    """Take a number of our own, after sweeping what dead runs left; give all back at the end.

    A guardian stands by, in case that we cannot.
    """
    with ExitStack() as held:
        number, file = _take_number(held)
        run_id = f"{number}-{os.getpid()}-{time.time_ns()}"
        claim = MachineClaim(number, run_id, str(directory.resolve()))
        _write(file, claim)
        with _guardian(run_id) as guardian:
            try:
                yield claim
            finally:
                sweep(claim)
                file.truncate(0)
                assert guardian.stdin is not None
                guardian.stdin.write(ALL_IS_WELL)


def sweep_after(run_id: str) -> None:
    """Sweep what a run left that has ended; nothing when somebody did so already."""
    number = int(run_id.partition("-")[0])
    ends_at = time.monotonic() + END_TIMEOUT_S
    with ExitStack() as held:
        file = _locked(number, held)
        while file is None and time.monotonic() < ends_at:
            time.sleep(GONE_AFTER_S)
            file = _locked(number, held)
        left = None if file is None else _read(file)
        if file is not None and left is not None and left.run_id == run_id:
            sweep(left)
            file.truncate(0)


def sweep(claim: MachineClaim) -> None:
    """Give back all that a run took: processes, mounts, namespaces, links."""
    _end_processes(claim)
    _unmount(claim.directory)
    if os.geteuid() == 0:
        _delete_network(claim)


def pids_of(run_id: str) -> list[int]:
    """Return the processes that bear a run's name, and are no zombies."""
    mark = f"{RUN_VARIABLE}={run_id}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                # A zombie's environment is empty.
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except OSError:
                continue
    return found


def _guardian(run_id: str) -> subprocess.Popen[bytes]:
    """Have a guardian stand by, who acts when its input ends before it is told that all is well."""
    command = [sys.executable, "-m", "ottla.jepsen.processes.cluster_guardian", run_id]
    # In a session of its own, so that a Ctrl-C meant for us leaves it alone.
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def _take_number(held: ExitStack) -> tuple[int, IO[str]]:
    taken: tuple[int, IO[str]] | None = None
    networks = _said_by_ip("-4", "route")
    for number in NUMBERS:
        with ExitStack() as probing:
            file = _locked(number, probing)
            if file is None:
                continue
            left = _read(file)
            if left is not None:
                sweep(left)
                file.truncate(0)
            is_foreign = left is None and f"10.231.{number}.0/" in networks
            if taken is None and not is_foreign:
                taken = number, file
                held.push(probing.pop_all())
        if taken is not None and not _claims_above(number):
            break
    assert taken is not None, "no number is free: 250 runs at once"
    return taken


def _claims_above(number: int) -> bool:
    return any(int(path.stem) > number for path in claims_directory().glob("*.lock"))


def _locked(number: int, held: ExitStack) -> IO[str] | None:
    """Open and lock a number's file; None while somebody else holds it."""
    directory = claims_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = held.enter_context((directory / f"{number}.lock").open("a+"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return file


def _read(file: IO[str]) -> MachineClaim | None:
    file.seek(0)
    text = file.read()
    try:
        return MachineClaim(**json.loads(text)) if text else None
    except (ValueError, TypeError):
        return None  # written in part: its run had taken nothing yet


def _write(file: IO[str], claim: MachineClaim) -> None:
    file.truncate(0)
    file.write(json.dumps(asdict(claim)))
    file.flush()


def _end_processes(claim: MachineClaim) -> None:
    ends_at = time.monotonic() + END_TIMEOUT_S
    looks_in_vain = 0
    while looks_in_vain < LOOKS:
        pids = [pid for pid in pids_of(claim.run_id) if pid != os.getpid()]
        looks_in_vain = 0 if pids else looks_in_vain + 1
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > ends_at:
            raise CommandError(f"processes {pids} do not end")
        time.sleep(GONE_AFTER_S)


def _unmount(directory: str) -> None:
    """Unmount what is mounted below a directory; the last word is lazy, for who holds on to it."""
    ends_at = time.monotonic() + UNMOUNT_TIMEOUT_S
    while points := _mounts_below(directory):
        is_late = time.monotonic() > ends_at
        for point in points:
            run(["umount", *(["--lazy"] if is_late else []), point], is_checked=is_late)
        # One who was killed holds its files for a moment after it can be seen no longer.
        time.sleep(GONE_AFTER_S)
    while loops := _loops_below(directory):
        # They let go of their images by themselves, a moment after they are unmounted.
        if time.monotonic() > ends_at:
            for loop in loops:
                run(["losetup", "--detach", loop], is_checked=False)
            return
        time.sleep(GONE_AFTER_S)


def _loops_below(directory: str) -> list[str]:
    """Return the loop devices whose images lie below a directory."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            if path.read_text().startswith(f"{directory}/"):
                found.append(f"/dev/{path.parts[3]}")
    return found


def _mounts_below(directory: str) -> list[str]:
    """Return the mount points below a directory, the deepest first."""
    points = [
        line.split()[4].replace("\\040", " ")
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    ]
    return sorted((one for one in points if one.startswith(f"{directory}/")), reverse=True)


def _delete_network(claim: MachineClaim) -> None:
    namespaces = _said_by_ip("netns", "list")
    for name in re.findall(rf"^({claim.prefix}-\S+)", namespaces, re.MULTILINE):
        run(["ip", "netns", "delete", name], is_checked=False)
    links = _said_by_ip("-o", "link")
    for name in re.findall(rf"^\d+: ({claim.prefix}(?:[a-z]\d*)?)[@:]", links, re.MULTILINE):
        run(["ip", "link", "delete", name], is_checked=False)


def _said_by_ip(*words: str) -> str:
    """Return what `ip` says; nothing where it is not installed, for then nothing was made by it."""
    try:
        return run(["ip", *words], is_checked=False)
    except CommandError:
        return ""
