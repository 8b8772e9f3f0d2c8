"""`ottla up` in a process of its own, started by the tests that need it."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE_S = 60.0


class Up:
    """One `ottla up` and all it printed."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.path = directory.with_suffix(".log")
        # Like `ottla up`, "-P" imports no modules from the current directory.
        command = [sys.executable, "-P", "-m", "ottla.cli", "up", "--dir", str(directory), *options]
        with self.path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory.parent)

    def said(self, words: str) -> re.Match[str]:
        """Wait until the output matches a pattern; return the match."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(words, self.path.read_text())) is None:
            is_waiting = self.process.poll() is None and time.monotonic() < deadline
            assert is_waiting, self.path.read_text()
            time.sleep(0.02)
        return found

    def pid(self, role: str, index: int = 0) -> int:
        found = json.loads((self.directory / "cluster.json").read_text())
        return int(found[f"{role}s"][index]["pid"])

    def stop(self) -> None:
        """Stop it, and wait until all its nodes have."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    with starting(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def up_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Up]]:
    """The same for all tests of a module."""
    with starting(tmp_path_factory.mktemp("up")) as start:
        yield start


@contextmanager
def starting(directory: Path) -> Iterator[Callable[..., Up]]:
    made: list[Up] = []

    def start(*options: str) -> Up:
        made.append(Up(directory / "data", *options))
        made[-1].said("is ready")
        return made[-1]

    yield start
    for one in made:
        one.process.terminate()
        one.process.wait(PATIENCE_S)
