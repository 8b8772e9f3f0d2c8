"""Keeps free space in one log directory by deleting local copies of segments that the object store
has (`local.retention.free.bytes`).

The free space is measured each second, because a busy producer fills a small volume within seconds.
Files that wait for `file.delete.delay.ms` are removed first, and then cached parts of copied
segments. Then `relief_plan` decides.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator

import trio

from ottla.model.amounts import amount, counted
from ottla.model.errors import RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.log_events import event
from ottla.model.seams import Clock
from ottla.storage.disk.disk_seam import Space
from ottla.storage.log.log import Log
from ottla.storage.manager.delayed_removal_driver import DelayedRemoval
from ottla.storage.tier.relief_plan import TieredLogSpace, plan_relief

_LOGGER = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two measurements of the free space. With a larger value, producers fill more of a
volume before copies are deleted."""

READS_S = 60.0
"""Seconds between two checks of which segments were read. Read times of segments have this
resolution."""

REPORT_S = 60.0
"""Minimum seconds between two log lines about deleted copies. Their numbers are metrics."""


class DiskRelief:
    """Task that deletes copied segments of one log directory to keep disk space free, with counters
    of the deletions."""

    def __init__(
        self,
        path: str,
        free_bytes_min: int,
        clock: Clock,
        *,
        logs: Callable[[], Iterator[tuple[TopicPartition, Log]]],
        measure: Callable[[], Awaitable[Space]],
        removal: DelayedRemoval,
    ) -> None:
        """Create the task for the directory at `path`. `logs` yields the directory's logs;
        `measure` returns the size and free space of its volume."""
        self.path = path
        self.segment_count = 0
        """Number of segments whose local copy was deleted for lack of space."""
        self.size_bytes = 0
        """Size in bytes of the segments whose local copy was deleted for lack of space."""
        self.is_short = False
        """True if the last measurement found less free space than required."""
        self.on_short: Callable[[], None] = lambda: None
        """Function that is called while the directory is short of space and has too few copied
        segments."""
        self.shrink_cache: Callable[[int], Awaitable[int]] | None = None
        """Function that removes cached parts of copied segments from the directory, until the given
        number of bytes is freed. Returns the number of freed bytes. None if the directory contains
        no cache."""
        self.free_bytes_min = free_bytes_min
        """Number of free bytes below which copied segments are deleted; 0 disables the deletion."""
        self._clock = clock
        self._logs = logs
        self._measure = measure
        self._removal = removal
        self._reported_s = float("-inf")

    async def run(self) -> None:
        """Keep the required disk space free until cancelled. Returns at once if `free_bytes_min` is
        0."""
        if not self.free_bytes_min:
            return
        looked_s = trio.current_time()
        while True:
            await trio.sleep(LOOK_S)
            if trio.current_time() - looked_s >= READS_S:
                looked_s = trio.current_time()
                self._note_reads()
            await self.relieve()

    async def relieve(self) -> None:
        """Measure the free space, and delete copied segments if the space is below
        `free_bytes_min`."""
        missing_bytes = await self._missing_bytes()
        if missing_bytes > 0 and await self._removal.remove_all():
            missing_bytes = await self._missing_bytes()
        # A cache that keeps the room would cost the logs all segments that they have locally.
        if missing_bytes > 0 and self.shrink_cache and await self.shrink_cache(missing_bytes):
            missing_bytes = await self._missing_bytes()
        self.is_short = missing_bytes > 0
        if not self.is_short:
            return
        self._note_reads()
        before = (self.segment_count, self.size_bytes)
        now_ms = self._clock.wall_ms()
        logs = dict(self._tiered())
        spaces = {partition: log.tiered_space(now_ms) for partition, log in logs.items()}
        plan = plan_relief(spaces, missing_bytes)
        for partition, end_offset in plan.ends.items():
            await self._delete(partition, logs[partition], end_offset, spaces[partition])
        for partition in plan.rolls:
            await self._roll(partition, logs[partition])
        if plan.ends:
            await self._removal.remove_all()
            self._report(*before)
        if plan.size_bytes < missing_bytes:
            self.on_short()

    async def _missing_bytes(self) -> int:
        try:
            return self.free_bytes_min - (await self._measure()).usable_bytes
        except OSError:
            return 0  # users of the disk meet the same error and handle it

    def _tiered(self) -> Iterator[tuple[TopicPartition, Log]]:
        for partition, log in self._logs():
            if log.failure is None and log.is_tiered:
                yield partition, log

    def _note_reads(self) -> None:
        now_ms = self._clock.wall_ms()
        for _, log in self._tiered():
            log.note_reads(now_ms)

    async def _delete(
        self, partition: TopicPartition, log: Log, end_offset: Offset, space: TieredLogSpace
    ) -> None:
        try:
            count = await log.delete_copied_segments(end_offset)
        except RefusedError as error:
            _LOGGER.warning("local copies of %s stay: %s", partition, error.message)
            return
        self.segment_count += count
        self.size_bytes += sum(segment.size_bytes for segment in space.copied[:count])

    async def _roll(self, partition: TopicPartition, log: Log) -> None:
        try:
            await log.roll(now_ms=self._clock.wall_ms())
        except RefusedError as error:
            _LOGGER.warning("the active segment of %s stays open: %s", partition, error.message)

    def _report(self, before_count: int, before_bytes: int) -> None:
        """Log the number and size of the segments that were deleted since the totals were
        `before_count` and `before_bytes`. Does nothing within REPORT_S of the last log line."""
        count = self.segment_count - before_count
        now_s = trio.current_time()
        if not count or now_s - self._reported_s < REPORT_S:
            return
        self._reported_s = now_s
        _LOGGER.info(
            "log directory %s had less than %s free: deleted the local copies of %s (%s) that the "
            "object store has",
            self.path,
            amount(self.free_bytes_min),
            counted(count, "segment"),
            amount(self.size_bytes - before_bytes),
            extra=event("disk.relieved", path=self.path, segments=count),
        )
