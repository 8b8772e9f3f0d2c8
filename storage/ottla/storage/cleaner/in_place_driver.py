"""Cleanings in the broker's own loop, over its own disk: for simulated brokers and tests."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from ottla.storage.cleaner.clean_driver import clean
from ottla.storage.cleaner.cleaning_task import (
    CleanedGroup,
    CleaningDone,
    CleaningTask,
    Throttle,
)
from ottla.storage.disk_seam import Disk


class InPlaceRunner:
    """Runs the passes where it is called."""

    died_count = 0
    dead_count = 0

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    @asynccontextmanager
    async def run(
        self, task: CleaningTask, throttle: Throttle
    ) -> AsyncIterator[AsyncIterator[CleanedGroup | CleaningDone]]:
        """Run a cleaning; nothing of it goes on after the block."""
        async with aclosing(clean(self._disk, task, throttle)) as reports:
            yield reports

    async def end_idle(self) -> None:
        """Do nothing: there is no worker."""
