"""One partition's log on disk (signatures; the bodies follow)."""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.model.seams import Rng
from ottla.storage.append_info import AppendInfo, AppendOrigin
from ottla.storage.disk_seam import Disk
from ottla.storage.log_config import LogConfig
from ottla.storage.slice import FileSlice

Progress = Callable[[int, int], None]
"""Told (segments left, bytes done since the last call) while a log recovers."""


class LogRead(NamedTuple):
    """Bytes from the start of the batch that holds the offset; no slice when none are due."""

    slice: FileSlice | None
    base_offset: Offset
    """Base offset of the first batch of the slice; the asked offset where there is no slice."""


class TimestampedOffset(NamedTuple):
    """What a look-up by time found."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: Epoch


async def open_log(
    disk: Disk,
    directory: str,
    *,
    config: LogConfig,
    topic_id: UUID | None,
    is_clean: bool,
    recovery_point: Offset,
    log_start_offset: Offset,
    now_ms: int,
    rng: Rng | None = None,
    progress: Progress | None = None,
) -> "Log":
    """Open a partition's directory, which is made when it is not there, and recover its log.

    `is_clean` says that the log was closed by `close`; else all from `recovery_point` on is
    checked.  RefusedError(INCONSISTENT_TOPIC_ID) when the directory belongs to another topic.
    """
    raise NotImplementedError


class Log:
    """One partition's records, on disk.  One writer; every plain method runs without awaiting."""

    config: LogConfig
    on_roll: Callable[["Log"], None]
    """Called after each roll; the manager then flushes up to `unflushed_roll_offset`."""

    @property
    def directory(self) -> str:
        """Return the path of the partition's directory."""
        raise NotImplementedError

    @property
    def topic_id(self) -> UUID | None:
        """Return the topic's id, from partition.metadata."""
        raise NotImplementedError

    @property
    def log_start_offset(self) -> Offset:
        """Return the first offset that may be read."""
        raise NotImplementedError

    @property
    def end_offset(self) -> Offset:
        """Return the offset the next record gets."""
        raise NotImplementedError

    @property
    def high_watermark(self) -> Offset:
        """Return the end of what is committed."""
        raise NotImplementedError

    @property
    def last_stable_offset(self) -> Offset:
        """Return the end of what READ_COMMITTED may see."""
        raise NotImplementedError

    @property
    def recovery_point(self) -> Offset:
        """Return the end of what is flushed."""
        raise NotImplementedError

    @property
    def last_epoch(self) -> Epoch:
        """Return the newest leader epoch, -1 for none."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments, without indexes."""
        raise NotImplementedError

    @property
    def segment_count(self) -> int:
        """Return how many segments there are; at least one."""
        raise NotImplementedError

    @property
    def failure(self) -> str | None:
        """Return why the log is offline, None while it serves."""
        raise NotImplementedError

    @property
    def is_flush_due(self) -> bool:
        """Say whether flush.messages records wait for a flush."""
        raise NotImplementedError

    @property
    def unflushed_since_ms(self) -> int | None:
        """Return when the oldest unflushed append was made, for flush.ms."""
        raise NotImplementedError

    @property
    def unflushed_roll_offset(self) -> Offset | None:
        """Return up to where closed segments wait for their flush; None when none does."""
        raise NotImplementedError

    def update_high_watermark(self, offset: Offset) -> bool:
        """Move the high watermark forward, at most to the end; say whether it moved."""
        raise NotImplementedError

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: Epoch,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Check, give offsets and write; RefusedError with Kafka's code when it cannot be."""
        raise NotImplementedError

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendInfo:
        """Write what the leader sent as it is; a batch cut off at the end is left out."""
        raise NotImplementedError

    def assign_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that a leadership begins at an offset (as a new leader does before it writes)."""
        raise NotImplementedError

    def read(
        self, offset: Offset, *, bytes_max: int, end_offset: Offset, at_least_one: bool
    ) -> LogRead:
        """Return the batches from the one that holds `offset`, below `end_offset`, as a slice.

        The slice may cut its last batch off; with `at_least_one` the first batch is whole even
        when it is larger than `bytes_max`.  RefusedError(OFFSET_OUT_OF_RANGE) outside the log.
        """
        raise NotImplementedError

    def aborted_transactions(self, offset: Offset, end_offset: Offset) -> list[tuple[int, Offset]]:
        """Return (producer id, first offset) of each aborted transaction that meets the range."""
        raise NotImplementedError

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch up to the asked one and where it ends; (-1, -1) if unknown."""
        raise NotImplementedError

    def epoch_of(self, offset: Offset) -> Epoch:
        """Return the epoch an offset was written in, -1 if unknown."""
        raise NotImplementedError

    async def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: Offset
    ) -> TimestampedOffset | None:
        """Return the first record below `end_offset` with at least that timestamp."""
        raise NotImplementedError

    async def max_timestamp_offset(self, end_offset: Offset) -> TimestampedOffset | None:
        """Return the record with the largest timestamp (ListOffsets -3)."""
        raise NotImplementedError

    async def truncate_to(self, offset: Offset) -> bool:
        """Remove all from `offset` on; say whether anything was removed."""
        raise NotImplementedError

    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove everything; the log is empty and begins and ends at `offset`."""
        raise NotImplementedError

    async def delete_records_before(self, offset: Offset) -> None:
        """Raise the log start; OFFSET_OUT_OF_RANGE beyond the high watermark."""
        raise NotImplementedError

    async def flush(self, up_to: Offset | None = None) -> Offset:
        """Make everything below `up_to` (default: the end) durable; return the recovery point."""
        raise NotImplementedError

    async def roll(self, *, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty, and flush the closed one."""
        raise NotImplementedError

    async def delete_old_segments(self, now_ms: int) -> int:
        """Remove segments that retention or the log start no longer keeps; return how many."""
        raise NotImplementedError

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have not written for producer.id.expiration.ms."""
        raise NotImplementedError

    async def close(self) -> None:
        """Flush, trim the indexes, write the producer snapshot: what a clean marker promises."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Let go of the files as they are, before the directory is removed or after a failure."""
        raise NotImplementedError
