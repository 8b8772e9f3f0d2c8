"""Runner that performs log compactions in the broker's event loop, on the broker's own disk. Used
by simulated brokers and tests."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from ottla.storage.cleaner.clean_driver import clean
from ottla.storage.cleaner.cleaning_task import (
    CleanedGroup,
    CleaningDone,
    CleaningTask,
    Throttle,
)
from ottla.storage.disk.disk_seam import Disk


class InPlaceRunner:
    """Runner that performs both passes of a log compaction in the calling task."""

    died_count = 0
    dead_count = 0

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    @asynccontextmanager
    async def run(
        self, task: CleaningTask, throttle: Throttle
    ) -> AsyncIterator[AsyncIterator[CleanedGroup | CleaningDone]]:
        """Begin a compaction in the event loop. The `async with` block receives an iterator over
        the new segments and the final result. The compaction ends at the latest with the block."""
        async with aclosing(clean(self._disk, task, throttle)) as reports:
            yield reports

    async def end_idle(self) -> None:
        """Do nothing, because this runner has no worker processes."""
