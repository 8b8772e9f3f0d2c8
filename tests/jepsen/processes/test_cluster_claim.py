"""A run frees all resources of the machine that it claimed, however it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.cluster_claim import (
    CLAIMS_VARIABLE,
    MachineClaim,
    claimed,
    pids_of,
    sweep,
    sweep_after,
)

pytestmark = pytest.mark.cluster

HARNESS = """
import os, signal, subprocess, sys, trio
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
from ottla.jepsen.processes.cluster_claim import RUN_VARIABLE, claimed
from ottla.jepsen.processes.disks import ImageDisk
from ottla.jepsen.processes.network_namespaces import open_namespaces

async def main() -> None:
    directory = Path(sys.argv[1])
    with claimed(directory) as claim:
        async with open_namespaces(claim, ["a"]) as network:
            disk = ImageDisk(directory, "a", size_bytes=64 << 20)
            await disk.open()
            # It holds the file system open, and hears no signal but the last one.
            child = (
                "import signal, time; signal.signal(15, signal.SIG_IGN);"
                "print('up', flush=True); time.sleep(600)"
            )
            process = subprocess.Popen(
                [*network.endpoints["a"].command_prefix, sys.executable, "-c", child],
                env={**os.environ, RUN_VARIABLE: claim.run_id},
                cwd=disk.data,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            process.stdout.readline()
            print(claim.number, claim.run_id, flush=True)
            if len(sys.argv) > 2:
                raise RuntimeError(sys.argv[2])
            await trio.sleep_forever()

trio.run(main)
"""


@pytest.fixture(autouse=True)
def claims_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep away from other runs, which would sweep at once what is dead here."""
    monkeypatch.setenv(CLAIMS_VARIABLE, str(tmp_path / "claims"))


class Harness:
    """A run in a process of its own, and the resources that it claimed."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.directory = directory
        directory.mkdir()
        command = [sys.executable, "-c", HARNESS, str(directory), *words]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        number, self.run_id = self.process.stdout.readline().split()
        self.claim = MachineClaim(int(number), self.run_id, str(directory))

    def taken(self) -> dict[str, object]:
        """Return the resources of the machine under the run's name."""
        loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True)
        return {
            "processes": len(pids_of(self.run_id)),
            "mounts": str(self.directory) in Path("/proc/self/mountinfo").read_text(),
            "loops": str(self.directory) in loops.stdout,
            "namespaces": any(
                path.name.startswith(f"{self.claim.prefix}-")
                for path in Path("/run/netns").iterdir()
            ),
            "links": sum(
                path.name in (self.claim.bridge, self.claim.sink, self.claim.link_of("a"))
                for path in Path("/sys/class/net").iterdir()
            ),
        }

    def end(self) -> None:
        """Wait for the harness, and for its guardian, who holds its error output open."""
        self.process.communicate(timeout=60)


@contextmanager
def running(directory: Path, *words: str) -> Iterator[Harness]:
    """Have a harness at work for the length of a block."""
    harness = Harness(directory, *words)
    try:
        yield harness
    finally:
        harness.process.kill()
        harness.end()


ALL = {"processes": 1, "mounts": True, "loops": True, "namespaces": True, "links": 3}
NOTHING = {"processes": 0, "mounts": False, "loops": False, "namespaces": False, "links": 0}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_whatever_signal_ends_the_harness(
    tmp_path: Path, need: Callable[..., None], number: signal.Signals
) -> None:
    need(Ability.NAMESPACES, Ability.IMAGES)
    with running(tmp_path / "run") as harness:
        assert harness.taken() == ALL
        harness.process.send_signal(number)
        harness.end()
        assert harness.taken() == NOTHING


def test_nothing_is_left_after_an_error(tmp_path: Path, need: Callable[..., None]) -> None:
    need(Ability.NAMESPACES, Ability.IMAGES)
    with running(tmp_path / "run", "on purpose") as harness:
        harness.end()
        assert harness.process.returncode == 1
        assert harness.taken() == NOTHING


def test_the_next_run_sweeps_what_a_dead_one_left_and_spares_one_that_lives(
    tmp_path: Path, need: Callable[..., None]
) -> None:
    need(Ability.NAMESPACES, Ability.IMAGES)
    with running(tmp_path / "live") as live, running(tmp_path / "dead") as dead:
        # As after a power cut: the guardian is gone, too.
        for pid in guardians_of(dead.run_id):
            os.kill(pid, signal.SIGKILL)
        dead.process.kill()
        dead.end()
        assert dead.taken() == ALL
        with claimed(tmp_path) as claim:
            assert claim.number != live.claim.number
            assert dead.taken() == NOTHING
            assert live.taken() == ALL


def test_a_guardian_that_comes_late_leaves_the_next_run_alone(tmp_path: Path) -> None:
    with claimed(tmp_path) as first:
        pass
    with claimed(tmp_path) as second:
        (tmp_path / "kept").touch()
        assert second.number == first.number or second.run_id != first.run_id
    sweep_after(first.run_id)


def test_two_runs_have_different_numbers(tmp_path: Path) -> None:
    with claimed(tmp_path / "a") as first, claimed(tmp_path / "b") as second:
        assert first.number != second.number
        assert first.run_id != second.run_id


def test_only_processes_of_the_run_are_ended(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    stranger = subprocess.Popen(sleep, env={**os.environ, "OTTLA_JEPSEN_RUN": "0-1-23"})
    ours = subprocess.Popen(sleep, env={**os.environ, "OTTLA_JEPSEN_RUN": "0-1-2"})
    try:
        sweep(MachineClaim(0, "0-1-2", str(tmp_path)))
        assert ours.wait(60) == -signal.SIGKILL
        assert stranger.poll() is None
    finally:
        for process in (stranger, ours):
            process.kill()
            process.wait()


def guardians_of(run_id: str) -> list[int]:
    """Return the guardians of a run."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and path.joinpath("cmdline").exists():
            words = (path / "cmdline").read_bytes().split(b"\0")
            if run_id.encode() in words and any(b"guardian" in word for word in words):
                found.append(int(path.name))
    return found
