"""Removal of files that logs have renamed to `.deleted`, each after its topic's
file.delete.delay.ms.

Readers that opened a file earlier use its descriptor and need no name. During the delay, the
operator can restore files that were removed because of a wrong setting. Files that remain when the
process ends are removed at the next start.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import heappop, heappush

import trio

from ottla.storage.disk.disk_seam import Disk

_LOGGER = logging.getLogger(__name__)


class DelayedRemoval:
    """Files of one log directory that were renamed to `.deleted` and wait for their removal."""

    def __init__(self, disk: Disk, on_error: Callable[[OSError], None]) -> None:
        """Create the schedule of removals. `on_error` is called with each OSError of the disk."""
        self._disk = disk
        self._on_error = on_error
        self._waiting: list[tuple[float, int, Sequence[str]]] = []
        self._count = 0
        self._is_added = trio.Event()

    def add(self, paths: Sequence[str], delay_ms: int) -> None:
        """Schedule the removal of files after a delay in ms."""
        self._count += 1
        heappush(self._waiting, (trio.current_time() + delay_ms / 1_000, self._count, paths))
        self._is_added.set()

    async def run(self) -> None:
        """Remove each file when its delay has passed, until this call is cancelled."""
        while True:
            self._is_added = trio.Event()
            due = self._waiting[0][0] if self._waiting else float("inf")
            with trio.move_on_at(due):
                await self._is_added.wait()
            while self._waiting and self._waiting[0][0] <= trio.current_time():
                await self._remove(heappop(self._waiting)[2])

    async def remove_all(self) -> bool:
        """Remove all waiting files now, because the directory is short of free space. Returns True
        if any file was removed."""
        had_any = bool(self._waiting)
        while self._waiting:
            await self._remove(heappop(self._waiting)[2])
        return had_any

    async def _remove(self, paths: Sequence[str]) -> None:
        try:
            for path in paths:
                with suppress(FileNotFoundError):  # its directory was renamed or removed
                    await self._disk.unlink(path)
        except OSError as error:
            _LOGGER.warning("%s stays until the next start: %s", paths[0], error)
            self._on_error(error)
