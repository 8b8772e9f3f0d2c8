"""Where a cleaning runs: the seam between the log manager, which decides, and who does the work.

A broker has worker processes; a simulated one and the tests run the passes in place.  Either way a
cleaning reports each new segment and waits until that was swapped in before it begins the next one.
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
    """The process that ran a cleaning ended before the cleaning did."""


class CleaningRunner(Protocol):
    """What carries out cleanings."""

    @property
    def died_count(self) -> int:
        """Number of workers that ended before their cleaning did, since the start."""
        ...

    @property
    def dead_count(self) -> int:
        """Number of workers that ended so, and have no successor yet."""
        ...

    def run(
        self, task: CleaningTask, throttle: Throttle
    ) -> AbstractAsyncContextManager[AsyncIterator[CleanedGroup | CleaningDone]]:
        """Begin a cleaning, which ends with the block.

        The iterator raises CorruptDataError if the log's bytes lie, OSError if the disk fails or is
        full, WorkerDiedError.
        """
        ...

    async def end_idle(self) -> None:
        """Let go of what is kept between two cleanings."""
        ...
