"""Measures the room of one directory in its rhythm, and logs what changes.

A measurement runs in a thread of the directory's own, so that a disk that hangs holds up no loop
and no other directory; who asks in between gets the last one.
"""

import logging
from collections.abc import Iterable

import trio

from ottla.model.log_events import event
from ottla.model.settings.disks import DiskConfig
from ottla.storage.disk_room import (
    OF_LOGS,
    SILENT_MS,
    ChangeKind,
    DiskRoom,
    RoomChange,
    RoomReport,
    RoomState,
    RoomWords,
)
from ottla.storage.disk_seam import Disk, Space

_LOGGER = logging.getLogger(__name__)

FULL_INTERVAL_MS = 2_000
"""How often a full directory is measured, at most: who made room wants to see it."""

FRESH_PATIENCE_S = 1.0
"""How long an asker waits for a measurement: a disk in order takes less than a millisecond."""

EVENTS = {
    ChangeKind.FILLING: ("disk.filling", logging.WARNING),
    ChangeKind.FULL: ("disk.full", logging.ERROR),
    ChangeKind.HAS_ROOM: ("disk.room", logging.INFO),
    ChangeKind.HANGS: ("disk.hangs", logging.ERROR),
    ChangeKind.ANSWERS: ("disk.answers", logging.INFO),
}


class MeasuredRoom:
    """The room of one directory, as it was measured last."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        bounds: DiskConfig,
        words: RoomWords = OF_LOGS,
    ) -> None:
        self.path = path
        self.known = DiskRoom(path, bounds, words)
        self._disk = disk
        self._interval_ms = bounds.check_interval_ms
        self._wanted = trio.Event()
        self._measured = trio.Event()

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await self._measure()
            interval_ms = self._interval_ms
            if self.known.state is RoomState.FULL:
                interval_ms = min(interval_ms, FULL_INTERVAL_MS)
            with trio.move_on_after(interval_ms / 1_000):
                await self._wanted.wait()
            self._wanted = trio.Event()

    async def fresh(self) -> Space:
        """Return the room at this moment; the last known where the disk does not say it at once.

        Raises OSError if it was never measured.
        """
        patience_s = 0 if self.known.hanging(now_ms()) else FRESH_PATIENCE_S
        with trio.move_on_after(patience_s):
            return await self._disk.space(self.path)
        if self.known.space is None:
            raise OSError(f"the disk of {self.path} does not answer")
        return self.known.space

    def note_refused(self) -> None:
        """Take note of a write that found no room."""
        if self.known.state is not RoomState.FULL:
            self._wanted.set()
        change = self.known.on_refused(now_ms())
        if change is not None:
            self._log([change])

    def report(self) -> RoomReport:
        """Return what the node tells of the directory."""
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
                # Not told here: what uses the disk meets the same error, and judges it.
                self._log([self.known.on_unmeasured()])
                return
            self._log([self.known.on_silence(now_ms())])

    def _log(self, changes: Iterable[RoomChange | None]) -> None:
        for change in changes:
            if change is not None:
                fields: dict[str, object] = {"path": self.path}
                if change.space is not None:
                    fields |= change.space._asdict()
                name, level = EVENTS[change.kind]
                _LOGGER.log(level, "%s", change.text, extra=event(name, **fields))


def now_ms() -> int:
    """Return the time of the loop, in milliseconds."""
    return int(trio.current_time() * 1_000)
