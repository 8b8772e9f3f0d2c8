"""Coroutines stepped by hand, and a disk whose every operation is a place to die at.

A core of storage awaits nothing but the disk, so no loop is needed: a step runs a coroutine to its
next disk operation.  Between two steps others may go on, or the power may fail; a doomed disk ends
the process also between two operations that are not awaited.
"""

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from types import coroutine
from typing import Any

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.model.seams import Rng


class Doomed(BaseException):
    """The process ends here; no core may catch it."""


@coroutine
def _pause() -> Generator[None, None, None]:
    yield


class DoomedDisk(SimulatedDisk):
    """The world's disk, which ends the process at a chosen operation."""

    def __init__(self, rng: Rng) -> None:
        super().__init__(rng, pause=_pause)
        self.operations_left: int | None = None
        """Operations until the process ends; None: it lives on."""
        self._is_quiet = False
        self._turns: dict[str, list[object]] = {}
        """Who replaces a file, and who waits for that, by path."""

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a file; of those that replace the same the first comes first, as on a worker."""
        turn, turns = object(), self._turns.setdefault(path, [])
        turns.append(turn)
        try:
            while turns[0] is not turn:
                await _pause()
            await super().write_atomically(path, data)
        finally:
            turns.remove(turn)

    def strike(self, operation: DiskOperation, path: str) -> None:
        """Count an operation down; then do what the world's disk does."""
        if self._is_quiet:
            return
        if self.operations_left is not None:
            if self.operations_left == 0:
                raise Doomed
            self.operations_left -= 1
        super().strike(operation, path)

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Let a judge look, to whom nothing fails."""
        self._is_quiet = True
        try:
            yield
        finally:
            self._is_quiet = False

    @property
    def is_faulty(self) -> bool:
        """Whether a fault is waiting to strike, or room is short."""
        return self.capacity_bytes is not None or self.faults.may_strike


class Stepped:
    """One coroutine under way."""

    def __init__(
        self, name: str, work: Coroutine[Any, Any, Any], on_end: Callable[[Any], None]
    ) -> None:
        self.name = name
        self.step_count = 0
        self._work = work
        self._on_end = on_end

    def step(self) -> bool:
        """Run to the next disk operation; return whether it has ended; what it raised passes."""
        self.step_count += 1
        try:
            self._work.send(None)
        except StopIteration as end:
            self._on_end(end.value)
            return True
        return False

    def drop(self) -> None:
        """Forget it: its process is dead."""
        with suppress(OSError, Doomed):  # it tidies up on a disk that is not its any more
            self._work.close()


def run_through(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, at once."""
    try:
        while True:
            work.send(None)
    except StopIteration as end:
        return end.value
