"""Interface between the cleaner, which chooses logs, and the runner that performs a cleaning.

A real broker has worker processes. In simulated brokers and tests, the event loop itself performs
the passes of a cleaning. In both cases a cleaning reports each new segment, and waits until it was
swapped in before it begins the next one.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ottla.storage.cleaner.cleaning_task import (
    CleanedGroup,
    CleaningDone,
    CleaningTask,
    Throttle,
)


class WorkerDiedError(Exception):
    """Error of a cleaning whose worker process ended too early."""


class CleaningRunner(Protocol):
    """Interface of a runner, which performs cleanings in a worker process or in the event loop."""

    @property
    def died_count(self) -> int:
        """Number of workers that ended during a cleaning, since the start of the broker."""
        ...

    @property
    def dead_count(self) -> int:
        """Number of workers that ended during a cleaning and have not been replaced yet."""
        ...

    def run(
        self, task: CleaningTask, throttle: Throttle
    ) -> AbstractAsyncContextManager[AsyncIterator[CleanedGroup | CleaningDone]]:
        """Begin a cleaning, which ends with the `async with` block. Yields an iterator over its new
        segments and its result.

        The iterator raises CorruptDataError if the log is corrupt, OSError if the disk fails or is
        full, and WorkerDiedError if the worker ends early.
        """
        ...

    async def end_idle(self) -> None:
        """Release resources that the runner keeps between cleanings."""
        ...
