"""Coroutines stepped by hand, and a disk that can end the process at any operation.

The code of `storage` awaits only the disk, so no event loop is needed: one step runs a coroutine to
its next disk operation. Between two steps other tasks may run, or the power may fail. A
`CrashingDisk` can also end the process between two operations that are not awaited.
"""

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from types import coroutine
from typing import Any

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.model.seams import Rng


class ProcessEnd(BaseException):
    """Raised in the code under test at the point where the simulated process ends. This code must
    not catch it."""


@coroutine
def _pause() -> Generator[None, None, None]:
    yield


class CrashingDisk(SimulatedDisk):
    """A simulated disk that ends the process at a chosen disk operation."""

    def __init__(self, rng: Rng) -> None:
        super().__init__(rng, pause=_pause)
        self.operations_left: int | None = None
        """Number of disk operations until the process ends. None means that the process does not
        end."""
        self._is_quiet = False
        self._turns: dict[str, list[object]] = {}
        """For each file, by path, the tasks that are replacing it or waiting to replace it, in
        order."""

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the content of a file. Replacements of one path run in order, as on a worker
        thread."""
        turn, turns = object(), self._turns.setdefault(path, [])
        turns.append(turn)
        try:
            while turns[0] is not turn:
                await _pause()
            await super().write_atomically(path, data)
        finally:
            turns.remove(turn)

    def raise_injected(self, operation: DiskOperation, path: str) -> None:
        """Count one disk operation and end the process if it was the last. Otherwise raise the
        OSError of an injected fault, if one matches."""
        if self._is_quiet:
            return
        if self.operations_left is not None:
            if self.operations_left == 0:
                raise ProcessEnd
            self.operations_left -= 1
        super().raise_injected(operation, path)

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Return a context for invariant checks, in which no disk operation fails."""
        self._is_quiet = True
        try:
            yield
        finally:
            self._is_quiet = False

    @property
    def is_faulty(self) -> bool:
        """True if an injected disk fault is pending, or free space is limited."""
        return self.capacity_bytes is not None or self.faults.may_fail_calls


class SteppedTask:
    """A coroutine that is run step by step, from one disk operation to the next."""

    def __init__(
        self, name: str, work: Coroutine[Any, Any, Any], on_end: Callable[[Any], None]
    ) -> None:
        self.name = name
        self.step_count = 0
        self._work = work
        self._on_end = on_end

    def step(self) -> bool:
        """Run the coroutine to its next disk operation. Returns whether the coroutine has ended. An
        exception of the coroutine is raised to the caller."""
        self.step_count += 1
        try:
            self._work.send(None)
        except StopIteration as end:
            self._on_end(end.value)
            return True
        return False

    def drop(self) -> None:
        """Close the coroutine, because its process has ended."""
        with suppress(OSError, ProcessEnd):  # its clean-up runs on a disk that is no longer its own
            self._work.close()


def run_through(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end without interruption, and return its result."""
    try:
        while True:
            work.send(None)
    except StopIteration as end:
        return end.value
