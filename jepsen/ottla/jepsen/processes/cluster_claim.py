"""The resources of this machine that a run allocates, and their release. If the run's process dies,
another process releases them.

A run claims a number by locking a file. The number determines its subnet and the names of its
bridge, links and namespaces. The lock ends with the process that holds it. So if a claim file can
be locked, its run is dead, and the run's leftover resources are released.

Invariant OnlyOurs: a process, mount, link or namespace is removed only if it is marked as the run's
own. A process has the run's id in its environment, a mount is below the run's directory, and links
and namespaces are named after the number.
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
"""Name of the environment variable that marks every process of a run. Its value is the run's id, by
which the processes are found."""

CLAIMS_VARIABLE = "OTTLA_JEPSEN_CLAIMS"
"""Name of the environment variable that names another directory for claim files. Runs with
different claim directories never release each other's resources."""

NUMBERS = range(1, 251)
"""Numbers for runs on this machine. Each run claims one number, which becomes the third byte of the
run's subnet."""

END_TIMEOUT_S = 10.0
"""Seconds after which a killed process that still exists counts as hung in the kernel."""

UNMOUNT_TIMEOUT_S = 5.0
GONE_AFTER_S = 0.02
LOOKS = 3
"""Number of searches of the process table for the processes of a run. A single search may miss a
process, because a process that has just called exec has no visible environment for a moment."""

ALL_IS_WELL = b"."
"""Byte that a run sends to its guardian process after all resources of the run are released."""


@dataclass(frozen=True, slots=True)
class MachineClaim:
    """Number that one run reserves on this machine, and the names of resources that are derived
    from the number."""

    number: int
    run_id: str
    """Id of the run. Unlike the claimed number, it is never used again."""
    directory: str
    """Directory that contains all files and mounts of the run."""

    @property
    def prefix(self) -> str:
        """Prefix of the names of the run's network links. An interface's name has 15 characters at
        most."""
        return f"ottj{self.number}"

    @property
    def bridge(self) -> str:
        """Name of the network bridge to which all nodes of the run are connected."""
        return self.prefix

    @property
    def sink(self) -> str:
        """Name of a network bridge without connections, which drops the packets sent to it."""
        return f"{self.prefix}x"

    def link_of(self, node: str) -> str:
        """Return the name of a network interface: the test harness's end of the link to a node."""
        return f"{self.prefix}{node}"

    def namespace_of(self, node: str) -> str:
        """Return the name of the network namespace of a node."""
        return f"{self.prefix}-{node}"

    def address(self, host: int) -> str:
        """Return the IPv4 address of host number `host` in the run's subnet, a /24."""
        return f"10.231.{self.number}.{host}"


def claims_directory() -> Path:
    """Return the directory with the claim files of this user's runs. A run locks one file for each
    number that it has claimed."""
    if CLAIMS_VARIABLE in os.environ:
        return Path(os.environ[CLAIMS_VARIABLE])
    if os.geteuid() == 0:
        return Path("/run/ottla-jepsen")
    return Path(tempfile.gettempdir()) / f"ottla-jepsen-{os.geteuid()}"


@contextmanager
def claimed(directory: Path) -> Iterator[MachineClaim]:
    """Claim a free number for this run and yield the claim (the number and the names made from it),
    after releasing the resources of dead runs. Everything is released at the end of the block.

    If this process dies, a guardian process releases everything.
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
    """Release the resources (processes, mounts, namespaces, links) of an ended run, unless another
    process has already released them."""
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
    """Release all resources that a run has allocated on this machine: processes, mounts,
    namespaces, links."""
    _end_processes(claim)
    _unmount(claim.directory)
    if os.geteuid() == 0:
        _delete_network(claim)


def pids_of(run_id: str) -> list[int]:
    """Return the ids of the processes that have a run's id in their environment, without
    zombies."""
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
    """Start a guardian process, and return it. The guardian releases the run's resources on this
    machine if its standard input ends before ALL_IS_WELL arrives."""
    command = [sys.executable, "-m", "ottla.jepsen.processes.cluster_guardian", run_id]
    # A session of its own protects it from a Ctrl-C in the harness' terminal.
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
    """Open and lock the claim file of a number. Returns None if another process has locked it. The
    lock ends when the stack `held` is closed."""
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
        return None  # incomplete file: the run had allocated nothing yet


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
    """Unmount all file systems below a directory. The last attempt is lazy, for mounts still in
    use."""
    ends_at = time.monotonic() + UNMOUNT_TIMEOUT_S
    while points := _mounts_below(directory):
        is_late = time.monotonic() > ends_at
        for point in points:
            run(["umount", *(["--lazy"] if is_late else []), point], is_checked=is_late)
        # A killed process keeps its files open for a moment after it disappears from /proc.
        time.sleep(GONE_AFTER_S)
    while loops := _loops_below(directory):
        # Loop devices release their images by themselves, a moment after the unmount.
        if time.monotonic() > ends_at:
            for loop in loops:
                run(["losetup", "--detach", loop], is_checked=False)
            return
        time.sleep(GONE_AFTER_S)


def _loops_below(directory: str) -> list[str]:
    """Return the loop devices whose images are files below a directory."""
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
    """Return the output of an `ip` command. Returns "" if `ip` is not installed, since then there
    is nothing to release."""
    try:
        return run(["ip", *words], is_checked=False)
    except CommandError:
        return ""
