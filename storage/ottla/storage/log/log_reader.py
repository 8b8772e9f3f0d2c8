"""Reads of a log: batches as file slices, aborted transactions, offsets by time.

A plain read never waits for the disk: it raises `NotCachedError` for a range that is not in the
page cache, and changes nothing. An awaited read loads that range and repeats the look-up from the
start, because the log may have changed in the meantime.
"""

from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import NamedTuple, NoReturn

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.storage.disk.disk_seam import DiskFile, NotCachedError, read_some, when_cached
from ottla.storage.disk.slice import CACHED_FOR_MS, FileSlice
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_state import LogState
from ottla.storage.segments.segment import COLD_BLOCK_BYTES, Segment
from ottla.storage.segments.timestamp_lookup import (
    TimestampedOffset,
    first_at_or_after,
    with_largest_timestamp,
)
from ottla.storage.segments.transaction_index import AbortedTransaction

_FIRST_OFFSET = attrgetter("first_offset")


class LogRead(NamedTuple):
    """Result of a read of a log: a file slice that begins with the batch of the requested offset,
    or no slice if there are no records."""

    slice: FileSlice | None
    base_offset: Offset
    """Base offset of the first batch in the slice that a read returned. Without a slice, the
    requested offset."""
    end_offset: Offset
    """An offset above all records of the slice that a read returned."""
    first_batch_bytes: int = 0
    """Size in bytes of the first batch in the slice that a read returned."""


SMALL_READ_BYTES_MAX = 4096
"""Size in bytes of the largest range that `LogReader.read_single` copies into memory. With a larger
size, slow clients use more memory, and bytes are copied that could be sent from a file."""

KEPT_READ_BYTES_MAX = 2048
"""Maximum size in bytes of a range that a log stores in memory for the next reader of the same
offset. A larger size uses more memory in every partition that is read."""


class KeptRead:
    """The last small read of a log: its offset and its bytes. It is stored because many consumers
    at the log's end read the same batch."""

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


class KnownCached:
    """Range of a log's newest file that was found in the page cache, and the time of this check in
    ms."""

    __slots__ = ("at_ms", "end", "file", "start")

    def __init__(self, file: DiskFile, start: int, end: int, at_ms: int) -> None:
        self.file = file
        self.start = start
        self.end = end
        self.at_ms = at_ms


class LogReader:
    """Reader of one log: batches as file slices, aborted transactions, and look-ups by time."""

    __slots__ = ("_health", "_kept_read", "_known_cached", "_state")

    def __init__(self, state: LogState, health: LogHealth) -> None:
        self._state = state
        self._health = health
        self._kept_read: KeptRead | None = None
        self._known_cached: KnownCached | None = None

    def read(
        self,
        offset: Offset,
        bytes_max: int,
        end_offset: Offset,
        at_least_one: bool,
        whole_batches: bool,
    ) -> LogRead:
        """Return the log's batches from the one that contains `offset` up to `end_offset`, as a
        file slice.

        The slice may end within a batch. With `whole_batches`, it ends at the start of an indexed
        batch instead. With `at_least_one`, the first batch is complete even if it is larger than
        `bytes_max`. Raises:
        - RefusedError(OFFSET_OUT_OF_RANGE) if the offset is outside the log,
        - RefusedError(OFFSET_MOVED_TO_TIERED_STORAGE) if only the object store may have the record,
        - NotCachedError if the position or the start of the slice is not in the page cache.
        """
        state = self._state
        if self._health.failure is not None:
            self._health.check_online()
        if not state.local_start_offset <= offset <= state.end_offset:
            self._refuse_offset(offset)
        end_offset = min(end_offset, state.end_offset)
        if offset >= end_offset:
            return LogRead(None, offset, offset)
        index = state.index_of(offset)
        try:
            while index < len(state.segments):
                segment = state.segments[index]
                found = segment.find(offset)
                if found is not None:
                    segment.is_read = True
                    read = self._slice(index, found, bytes_max, end_offset, at_least_one)
                    if whole_batches and read.slice is not None:
                        read = _without_cut_batch(segment, read, read.slice, bytes_max)
                    if read.slice is not None and not segment.is_recent(offset):
                        self._check_cached(read.slice)
                    return read
                index += 1  # compaction removed the records in the rest of this segment
        except OSError as error:
            self._health.refuse(error)
        return LogRead(None, offset, offset)

    def _refuse_offset(self, offset: Offset) -> NoReturn:
        """Raise the RefusedError for an offset that is not in the local log."""
        state = self._state
        if state.log_start_offset <= offset < state.local_start_offset:
            raise RefusedError(
                ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
                f"Offset {offset} is below the local log start {state.local_start_offset}",
            )
        raise RefusedError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} is outside [{state.log_start_offset}, {state.end_offset}]",
        )

    def read_single(
        self,
        offset: Offset,
        bytes_max: int,
        end_offset: Offset,
        now_ms: int,
        whole_batches: bool,
    ) -> bytes | bytearray | FileSlice | None:
        """Return the same batches as `read` with `at_least_one`: as bytes if they are few,
        otherwise as a file slice.

        Returns None if the offset is outside the newest segment, or if there are no records: `read`
        then returns the empty result or raises the error. The slice stores which of its bytes were
        in memory at `now_ms`, by the clock of the event loop that serves connections. Raises
        NotCachedError as `read` does, and OSError from the file.
        """
        state = self._state
        segment = state.segments[-1]
        log_end = state.end_offset
        if self._health.failure is not None or not (
            segment.base_offset <= offset < end_offset <= log_end
        ):
            return None
        kept = self._kept_read
        if (
            kept is not None
            and kept.offset == offset
            and kept.segment is segment
            and kept.generation == state.generation
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
        # Comparisons cost a fifth of `min` and `max`.
        length = bytes_max if bytes_max > first_bytes else first_bytes
        if length > limit - position:
            length = limit - position
        if length <= 0:
            return None
        if whole_batches:
            length = _whole_length(segment, position, length, first_bytes, bytes_max)
        if length > SMALL_READ_BYTES_MAX:
            part = FileSlice(segment.file, position, length)
            if not segment.is_recent(offset):
                part.note_cached(self._cached_end(part, segment.size_bytes, now_ms), now_ms)
            return part
        if kept is not None and len(kept.data) == length:
            return kept.data
        data = segment.file.read_cached(position, length)
        if len(data) < length:
            return None
        if length <= KEPT_READ_BYTES_MAX:
            self._kept_read = KeptRead(
                segment, state.generation, offset, position, first_bytes, data
            )
        return data

    async def read_cold(
        self, offset: Offset, bytes_max: int, end_offset: Offset, at_least_one: bool
    ) -> LogRead:
        """Return the same as `read`, after loading file ranges that are not in the page cache."""

        def look() -> LogRead:
            return self.read(offset, bytes_max, end_offset, at_least_one, False)

        try:
            return await when_cached(self._state.disk, look)
        except OSError as error:
            self._health.refuse(error)

    async def read_bytes(
        self, offset: Offset, bytes_max: int, end_offset: Offset
    ) -> bytes | bytearray:
        """Return the bytes of the log's batches from `offset` on. Returns at most `bytes_max`
        bytes. If the first batch is larger, only this batch is returned."""
        found = await self.read_cold(offset, bytes_max, end_offset, True)
        part = found.slice
        if part is None:
            return b""
        try:
            return await read_some(self._state.disk, part.file, part.position, part.length)
        except OSError as error:
            self._health.refuse(error)

    def _cached_end(self, part: FileSlice, file_bytes: int, now_ms: int) -> int:
        """Return the file position up to which a slice is in the page cache. Raises NotCachedError
        as `_check_cached` does.

        A block that was found in the page cache counts as cached for `CACHED_FOR_MS`. Later slices
        of a sequential reader that are inside the block are then not checked again.
        """
        known, start = self._known_cached, part.position
        length = part.length
        end = start + (length if length < COLD_BLOCK_BYTES else COLD_BLOCK_BYTES)
        if (
            known is not None
            and known.file is part.file
            and known.start <= start
            and end <= known.end
            and now_ms - known.at_ms <= CACHED_FOR_MS
        ):
            return end
        block = min(COLD_BLOCK_BYTES, file_bytes - start)
        if block > part.length and self._state.disk.is_cached(part.file, start, block):
            self._known_cached = KnownCached(part.file, start, start + block, now_ms)
            return end
        return self._check_cached(part)

    def _check_cached(self, part: FileSlice) -> int:
        """Return the file position up to which a slice is in the page cache.

        Raises NotCachedError if the first block of the slice is not in the page cache.
        """
        size = min(part.length, COLD_BLOCK_BYTES)
        if not self._state.disk.is_cached(part.file, part.position, size):
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
        state = self._state
        segment = state.segments[index]
        position, base_offset, first_bytes = found
        limit = segment.size_bytes
        is_last = index + 1 == len(state.segments)
        segment_end = state.end_offset if is_last else state.segments[index + 1].base_offset
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

    def aborted_transactions(self, offset: Offset, end_offset: Offset) -> list[tuple[int, Offset]]:
        """Return the producer id and first offset of each aborted transaction that overlaps
        `[offset, end_offset)`.

        The transactions are sorted by first offset, as readers need them. Raises NotCachedError if
        a transaction index is not in the page cache.
        """
        state = self._state
        found: list[AbortedTransaction] = []
        try:
            for segment in state.segments[state.index_of(offset) :]:
                if not segment.abort_count:
                    continue
                if segment.transaction_index.collect(offset, end_offset, found):
                    break
        except OSError as error:
            self._health.refuse(error)
        found.sort(key=_FIRST_OFFSET)
        return [(aborted.producer_id, aborted.first_offset) for aborted in found]

    async def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: Offset
    ) -> TimestampedOffset | None:
        """Return offset, timestamp and leader epoch of the first record below `end_offset` whose
        timestamp is at least `timestamp_ms`. Returns None if there is no such record."""
        return await self._look_up(
            lambda segments, start: first_at_or_after(
                self._state.disk, segments, timestamp_ms, start_offset=start, end_offset=end_offset
            )
        )

    async def max_timestamp_offset(self, end_offset: Offset) -> TimestampedOffset | None:
        """Return offset, timestamp and leader epoch of the record below `end_offset` with the
        largest timestamp (ListOffsets -3). Returns None if no record has a timestamp."""
        return await self._look_up(
            lambda segments, start: with_largest_timestamp(
                self._state.disk, segments, start_offset=start, end_offset=end_offset
            )
        )

    async def _look_up(
        self,
        search: Callable[[Sequence[Segment], Offset], Awaitable[TimestampedOffset | None]],
    ) -> TimestampedOffset | None:
        """Run `search`, a look-up by time, over the log's segments and return its result. The
        search is repeated if segments were removed or truncated in the meantime.

        Raises RefusedError: KAFKA_STORAGE_ERROR if the disk fails, CORRUPT_MESSAGE if data is
        corrupt.
        """
        state = self._state
        while True:
            self._health.check_online()
            generation, start = state.generation, state.log_start_offset
            try:
                found = await search(tuple(state.segments), start)
            except (OSError, CorruptDataError) as error:
                if generation != state.generation:
                    continue
                if isinstance(error, OSError):
                    self._health.refuse(error)
                raise RefusedError(ErrorCode.CORRUPT_MESSAGE, error.where) from None
            if generation == state.generation and start == state.log_start_offset:
                return found


def _without_cut_batch(segment: Segment, read: LogRead, part: FileSlice, bytes_max: int) -> LogRead:
    """Return `read` (the result of a read) without its last batch if the limit `bytes_max` may have
    cut that batch off."""
    length = _whole_length(segment, part.position, part.length, read.first_batch_bytes, bytes_max)
    if length == part.length:
        return read
    return read._replace(slice=FileSlice(part.file, part.position, length))


def _whole_length(
    segment: Segment, position: int, length: int, first_bytes: int, bytes_max: int
) -> int:
    """Return the length in bytes of a file range, without its last batch if the limit `bytes_max`
    may have cut that batch off."""
    if length < bytes_max or length <= first_bytes:
        return length
    start = segment.offset_index.batch_start_before(position + length)
    return max(start - position, first_bytes)
