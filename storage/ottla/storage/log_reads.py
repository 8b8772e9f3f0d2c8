"""What a log gives to readers: batches as file slices, ends of epochs, offsets by time.

A plain read never waits for the disk: what it lacks it names (`NotCachedError`), changing nothing;
what is awaited has that brought in and looks again, for the log may have changed meanwhile.
"""

from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, Epoch, Offset, OffsetAndEpoch
from ottla.storage.disk_seam import NotCachedError, read_some, when_cached
from ottla.storage.local_log import LocalLog
from ottla.storage.segment import COLD_BLOCK_BYTES, Segment
from ottla.storage.slice import FileSlice
from ottla.storage.timestamp_lookup import (
    TimestampedOffset,
    first_at_or_after,
    with_largest_timestamp,
)
from ottla.storage.transaction_index import AbortedTransaction

_FIRST_OFFSET = attrgetter("first_offset")


class LogRead(NamedTuple):
    """Bytes from the start of the batch that holds the offset; no slice when none are due."""

    slice: FileSlice | None
    base_offset: Offset
    """Base offset of the first batch of the slice; the asked offset where there is no slice."""
    end_offset: Offset
    """An offset that no batch of the slice reaches."""
    first_batch_bytes: int = 0
    """Size of the first batch of the slice."""


SMALL_READ_BYTES_MAX = 4096
"""Size of the largest range that `read_single` reads.  Higher holds more memory for clients that
are slow to read, and copies what a file could be sent from."""

KEPT_READ_BYTES_MAX = 2048
"""Size of the largest range that a log keeps, for the next reader of the same place.  Higher costs
more memory in every partition that is read."""


class KeptRead:
    """What a log read last: consumers that follow it read the same batch one after another."""

    __slots__ = ("data", "first_bytes", "generation", "offset", "position", "segment")

    def __init__(
        self,
        segment: Segment,
        generation: int,
        offset: int,
        position: int,
        first_bytes: int,
        data: bytes | bytearray,
    ) -> None:
        self.segment = segment
        self.generation = generation
        self.offset = offset
        self.position = position
        self.first_bytes = first_bytes
        self.data = data


class ReadableLog(LocalLog):
    """The records of one partition as readers see them; `Log` adds how they come there."""

    _kept_read: KeptRead | None = None

    @property
    def last_epoch(self) -> Epoch:
        """Return the newest leader epoch, -1 for none."""
        return self._epochs.latest

    @property
    def last_stable_offset(self) -> Offset:
        """Return the end of what READ_COMMITTED may see."""
        first_unstable = self._producers.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log_start_offset)

    @property
    def newest_path(self) -> str:
        """Return the path of the newest segment's file."""
        return self._segments[-1].file.path

    def has_late_transaction(self, seen_before_ms: int) -> bool:
        """Return whether the longest open transaction has had no batch since a wall time."""
        seen_ms = self._producers.oldest_open_seen_ms
        return seen_ms is not None and seen_ms < seen_before_ms

    def read(
        self,
        offset: Offset,
        *,
        bytes_max: int,
        end_offset: Offset,
        at_least_one: bool,
        whole_batches: bool = False,
    ) -> LogRead:
        """Return the batches from the one that holds `offset`, below `end_offset`, as a slice.

        The slice may cut its last batch off, unless only `whole_batches` are wanted: then it ends
        where the index knows that one begins.  With `at_least_one` the first batch is whole even
        when it is larger than `bytes_max`.  RefusedError(OFFSET_OUT_OF_RANGE) outside the log,
        NotCachedError if the place is not known, or the slice does not begin, in memory.
        """
        if self.failure is not None:
            self._check_online()
        if not self.log_start_offset <= offset <= self.end_offset:
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is outside [{self.log_start_offset}, {self.end_offset}]",
            )
        end_offset = min(end_offset, self.end_offset)
        if offset >= end_offset:
            return LogRead(None, offset, offset)
        index = self._segment_index(offset)
        try:
            while index < len(self._segments):
                segment = self._segments[index]
                found = segment.find(offset)
                if found is not None:
                    read = self._slice(index, found, bytes_max, end_offset, at_least_one)
                    if whole_batches and read.slice is not None:
                        read = _without_cut_batch(segment, read, read.slice, bytes_max)
                    if read.slice is not None and not segment.is_recent(offset):
                        self._check_cached(read.slice)
                    return read
                index += 1  # compaction emptied the rest of this segment
        except OSError as error:
            self._refuse(error)
        return LogRead(None, offset, offset)

    def read_single(
        self,
        offset: Offset,
        *,
        bytes_max: int,
        end_offset: Offset,
        now_ms: int,
        whole_batches: bool = False,
    ) -> bytes | bytearray | FileSlice | None:
        """Return what `read` finds with `at_least_one`: the bytes where that is little, or a slice.

        None where it is not in the newest segment, or where `read` has to say why there is nothing.
        The slice remembers how far it was found in memory at `now_ms`, by the connections' clock.
        Raises NotCachedError as `read`, OSError from the file.
        """
        segment = self._segments[-1]
        log_end = self.end_offset
        if self.failure is not None or not segment.base_offset <= offset < end_offset <= log_end:
            return None
        kept = self._kept_read
        if (
            kept is not None
            and kept.offset == offset
            and kept.segment is segment
            and kept.generation == self._generation
        ):
            position, first_bytes = kept.position, kept.first_bytes
        else:
            kept = None
            found = segment.find(offset)
            if found is None:
                return None
            position, _, first_bytes = found
        limit = segment.size_bytes
        if end_offset < log_end:
            bound = segment.find(end_offset)
            if bound is not None:
                limit = bound[0]
        length = min(limit - position, max(bytes_max, first_bytes))
        if length <= 0:
            return None
        if whole_batches:
            length = _whole_length(segment, position, length, first_bytes, bytes_max)
        if length > SMALL_READ_BYTES_MAX:
            part = FileSlice(segment.file, position, length)
            if not segment.is_recent(offset):
                part.note_cached(self._check_cached(part), now_ms)
            return part
        if kept is not None and len(kept.data) == length:
            return kept.data
        data = segment.file.read_cached(position, length)
        if len(data) < length:
            return None
        if length <= KEPT_READ_BYTES_MAX:
            self._kept_read = KeptRead(
                segment, self._generation, offset, position, first_bytes, data
            )
        return data

    async def read_cold(
        self, offset: Offset, *, bytes_max: int, end_offset: Offset, at_least_one: bool
    ) -> LogRead:
        """Do what `read` does, bringing in what is not in memory."""

        def look() -> LogRead:
            return self.read(
                offset, bytes_max=bytes_max, end_offset=end_offset, at_least_one=at_least_one
            )

        try:
            return await when_cached(self._disk, look)
        except OSError as error:
            self._refuse(error)

    async def read_bytes(
        self, offset: Offset, *, bytes_max: int, end_offset: Offset
    ) -> bytes | bytearray:
        """Return what `read` leads to, at least one batch if there is one."""
        found = await self.read_cold(
            offset, bytes_max=bytes_max, end_offset=end_offset, at_least_one=True
        )
        part = found.slice
        if part is None:
            return b""
        try:
            return await read_some(self._disk, part.file, part.position, part.length)
        except OSError as error:
            self._refuse(error)

    def _check_cached(self, part: FileSlice) -> int:
        """Return up to where a slice is known to be in memory; NotCachedError if it is not."""
        size = min(part.length, COLD_BLOCK_BYTES)
        if not self._disk.is_cached(part.file, part.position, size):
            raise NotCachedError(part.file, part.position, size)
        return part.position + size

    def _slice(
        self,
        index: int,
        found: tuple[int, int, int],
        bytes_max: int,
        end_offset: Offset,
        at_least_one: bool,
    ) -> LogRead:
        segment = self._segments[index]
        position, base_offset, first_bytes = found
        limit = segment.size_bytes
        is_last = index + 1 == len(self._segments)
        segment_end = self.end_offset if is_last else self._segments[index + 1].base_offset
        if end_offset < segment_end:
            bound = segment.find(end_offset)
            if bound is not None:
                limit = bound[0]
        if first_bytes > bytes_max:
            bytes_max = first_bytes if at_least_one else 0
        length = min(limit - position, bytes_max)
        if length <= 0:
            return LogRead(None, Offset(base_offset), Offset(base_offset))
        part = FileSlice(segment.file, position, length)
        return LogRead(part, Offset(base_offset), min(end_offset, segment_end), first_bytes)

    @property
    def has_aborted_lately(self) -> bool:
        """Whether an aborted transaction ended in the newest segment."""
        return self._segments[-1].transaction_index.count > 0

    def aborted_transactions(self, offset: Offset, end_offset: Offset) -> list[tuple[int, Offset]]:
        """Return (producer id, first offset) of each aborted transaction that meets the range.

        In the order of their first offsets, in which readers reach them.  Raises NotCachedError if
        an index of them is not in memory.
        """
        found: list[AbortedTransaction] = []
        try:
            for segment in self._segments[self._segment_index(offset) :]:
                if segment.transaction_index.collect(offset, end_offset, found):
                    break
        except OSError as error:
            self._refuse(error)
        found.sort(key=_FIRST_OFFSET)
        return [(aborted.producer_id, aborted.first_offset) for aborted in found]

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch up to the asked one and where it ends; (-1, -1) if unknown."""
        return self._epochs.end_offset_for(epoch, self.end_offset)

    def epoch_of(self, offset: Offset) -> Epoch:
        """Return the epoch an offset was written in, -1 if unknown."""
        return self._epochs.epoch_of(offset) if offset < self.end_offset else NO_EPOCH

    async def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: Offset
    ) -> TimestampedOffset | None:
        """Return the first record below `end_offset` with at least that timestamp."""
        return await self._look_up(
            lambda segments, start: first_at_or_after(
                self._disk, segments, timestamp_ms, start_offset=start, end_offset=end_offset
            )
        )

    async def max_timestamp_offset(self, end_offset: Offset) -> TimestampedOffset | None:
        """Return the record with the largest timestamp (ListOffsets -3)."""
        return await self._look_up(
            lambda segments, start: with_largest_timestamp(
                self._disk, segments, start_offset=start, end_offset=end_offset
            )
        )

    async def _look_up(
        self,
        search: Callable[[Sequence[Segment], Offset], Awaitable[TimestampedOffset | None]],
    ) -> TimestampedOffset | None:
        """Search the segments, again where some were removed or cut meanwhile.

        Raises RefusedError(KAFKA_STORAGE_ERROR) if the disk fails, CORRUPT_MESSAGE at damage.
        """
        while True:
            self._check_online()
            generation, start = self._generation, self.log_start_offset
            try:
                found = await search(tuple(self._segments), start)
            except (OSError, CorruptDataError) as error:
                if generation != self._generation:
                    continue
                if isinstance(error, OSError):
                    self._refuse(error)
                raise RefusedError(ErrorCode.CORRUPT_MESSAGE, error.where) from None
            if generation == self._generation and start == self.log_start_offset:
                return found


def _without_cut_batch(segment: Segment, read: LogRead, part: FileSlice, bytes_max: int) -> LogRead:
    """Return what was read without a batch that `bytes_max` may have cut off."""
    length = _whole_length(segment, part.position, part.length, read.first_batch_bytes, bytes_max)
    if length == part.length:
        return read
    return read._replace(slice=FileSlice(part.file, part.position, length))


def _whole_length(
    segment: Segment, position: int, length: int, first_bytes: int, bytes_max: int
) -> int:
    """Return how much of a range is left without a batch that `bytes_max` may have cut off."""
    if length < bytes_max or length <= first_bytes:
        return length
    start = segment.offset_index.batch_start_before(position + length)
    return max(start - position, first_bytes)
