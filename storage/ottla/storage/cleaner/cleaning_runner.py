"""Interface between the log cleaner, which chooses logs, and the runner that performs a compaction.

A real broker has worker processes. In simulated brokers and tests, the event loop itself performs
the passes of a compaction. In both cases a compaction reports each new segment, and waits until the
segment was swapped in before it begins the next one.
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
    """Error of a log compaction: the worker process that performed it ended too early."""


class CleaningRunner(Protocol):
    """Interface of a runner, which performs log compactions in a worker process or in the event
    loop."""

    @property
    def died_count(self) -> int:
        """Number of worker processes that ended during a compaction, since the start of the
        broker."""
        ...

    @property
    def dead_count(self) -> int:
        """Number of worker processes that ended during a compaction and have not been replaced
        yet."""
        ...

    def run(
        self, task: CleaningTask, throttle: Throttle
    ) -> AbstractAsyncContextManager[AsyncIterator[CleanedGroup | CleaningDone]]:
        """Begin a compaction, which ends at the latest with the `async with` block. The block
        receives an iterator over the new segments and the final result.

        The iterator raises CorruptDataError if the log is corrupt, OSError if the disk fails or is
        full, and WorkerDiedError if the worker process ends early.
        """
        ...

    async def end_idle(self) -> None:
        """Release resources that the runner keeps between compactions."""
        ...
