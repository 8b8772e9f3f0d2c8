"""Periodic measurement of one directory's free space, with a log message for each change.

Each directory has its own measurement thread, so that a hanging disk blocks neither the event loop
nor other directories. Callers that request a measurement while one is in progress get the previous
result.
"""

import logging
from collections.abc import Iterable

import trio

from ottla.model.log_events import event
from ottla.model.settings.storage.disks import DiskConfig
from ottla.storage.directories.free_space import (
    OF_LOGS,
    SILENT_MS,
    ChangeKind,
    FreeSpace,
    FreeSpaceChange,
    FreeSpaceLevel,
    FreeSpaceReport,
    FreeSpaceTexts,
)
from ottla.storage.disk.disk_seam import Disk, Space

_LOGGER = logging.getLogger(__name__)

FULL_INTERVAL_MS = 2_000
"""Longest interval in ms between measurements of a full directory's free space. A longer interval
delays the report that an operator waits for."""

FRESH_PATIENCE_S = 1.0
"""Timeout in seconds of the free-space measurement that `FreeSpaceMonitor.fresh` makes. A working
disk needs less than a millisecond."""

EVENTS = {
    ChangeKind.FILLING: ("disk.filling", logging.WARNING),
    ChangeKind.FULL: ("disk.full", logging.ERROR),
    ChangeKind.HAS_SPACE: ("disk.room", logging.INFO),
    ChangeKind.HANGS: ("disk.hangs", logging.ERROR),
    ChangeKind.ANSWERS: ("disk.answers", logging.INFO),
}


class FreeSpaceMonitor:
    """Periodic measurement of the free space on one directory's volume."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        bounds: DiskConfig,
        words: FreeSpaceTexts = OF_LOGS,
    ) -> None:
        self.path = path
        self.known = FreeSpace(path, bounds, words)
        self._disk = disk
        self._interval_ms = bounds.check_interval_ms
        self._wanted = trio.Event()
        self._measured = trio.Event()

    async def run(self) -> None:
        """Measure the directory's free space periodically until cancelled."""
        while True:
            await self._measure()
            interval_ms = self._interval_ms
            if self.known.state is FreeSpaceLevel.FULL:
                interval_ms = min(interval_ms, FULL_INTERVAL_MS)
            with trio.move_on_after(interval_ms / 1_000):
                await self._wanted.wait()
            self._wanted = trio.Event()

    async def fresh(self) -> Space:
        """Measure and return the directory's free space. Returns the last measurement if the disk
        does not answer in time.

        Raises OSError if there is no measurement yet.
        """
        patience_s = 0 if self.known.hanging(now_ms()) else FRESH_PATIENCE_S
        with trio.move_on_after(patience_s):
            return await self._disk.space(self.path)
        if self.known.space is None:
            raise OSError(f"the disk of {self.path} does not answer")
        return self.known.space

    def note_refused(self) -> None:
        """Record that a write was refused for lack of space, which may change the level of free
        space."""
        if self.known.state is not FreeSpaceLevel.FULL:
            self._wanted.set()
        change = self.known.on_refused(now_ms())
        if change is not None:
            self._log([change])

    def report(self) -> FreeSpaceReport:
        """Return the directory's free space, the age of the measurement, and the current problems
        and warnings."""
        return self.known.report(now_ms())

    async def _measure(self) -> None:
        while True:
            self.known.on_asked(now_ms())
            try:
                with trio.move_on_after(SILENT_MS / 1_000):
                    space = await self._disk.space(self.path)
                    self._log(self.known.on_measured(space, now_ms()))
                    return
            except OSError:
                # Not logged here: users of the disk meet the same error and handle it.
                self._log([self.known.on_unmeasured()])
                return
            self._log([self.known.on_silence(now_ms())])

    def _log(self, changes: Iterable[FreeSpaceChange | None]) -> None:
        for change in changes:
            if change is not None:
                fields: dict[str, object] = {"path": self.path}
                if change.space is not None:
                    fields |= change.space._asdict()
                name, level = EVENTS[change.kind]
                _LOGGER.log(level, "%s", change.text, extra=event(name, **fields))


def now_ms() -> int:
    """Return the current time of the event loop's clock, in ms."""
    return int(trio.current_time() * 1_000)
