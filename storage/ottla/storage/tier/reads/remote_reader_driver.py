"""Reader of copied segments. It reads batches, offsets by time, aborted transactions, and the state
with which a new replica begins.

A read returns whole batches, which are sent to clients unchanged. The segment's offset index
contains the position at which the search for the batches starts. From there on, the batch headers
and the checksum of every chunk are checked. If an object differs from its manifest, the read fails
with CorruptObjectError.

If a reader continues where its last read ended, the next data is read ahead, also from the next
segment. A load continues if its reader is cancelled, so that a consumer with a short deadline makes
progress.

`reader_limits` contains the limits of memory and requests. A check of batch headers may block the
event loop for some ms, never for longer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import trio

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.segments.batch_scan import BatchScan
from ottla.storage.segments.epoch_cache import EpochEntry, decode_epochs
from ottla.storage.segments.timestamp_lookup import TimestampedOffset, first_of_scan
from ottla.storage.tier.manifest import CHUNK_BYTES, IndexKind
from ottla.storage.tier.object_names import SegmentNames, SegmentObject
from ottla.storage.tier.reads.cached_files_driver import CachedFiles
from ottla.storage.tier.reads.chunk_source_driver import ChunkedObject, ChunkKey, ChunkSource
from ottla.storage.tier.reads.index_sections import (
    AbortedInSegment,
    aborted_between,
    last_batch_before,
    offset_before_timestamp,
    position_before,
)
from ottla.storage.tier.reads.memory_cache import MemoryCache
from ottla.storage.tier.reads.reader_limits import (
    BATCH_BYTES_MAX,
    READ_BYTES_MAX,
    RUN_CHUNKS,
    ReaderLimits,
)
from ottla.storage.tier.reads.remote_indexes_driver import FileKey, RemoteIndexes
from ottla.storage.tier.reads.requests_driver import CorruptObjectError, ReadCounts, StoreRequests
from ottla.storage.tier.reads.sequential_reads import SequentialReads
from ottla.storage.tier.reads.shared_loads_driver import SharedLoads
from ottla.storage.tier.remote_segment import RemoteSegment, RemoteSegmentId
from ottla.storage.tier.store_seam import ObjectStore, StoreError
from ottla.wire.batch import BatchHeader
from ottla.wire.legacy import header_of_any_format

SCAN_BLOCK_BYTES: Final = 256 << 10
"""Number of bytes that a look-up by time scans before other tasks may run."""
BATCHES_PER_TURN: Final = 500
"""Number of batch headers that are read before other tasks may run. Reading them takes 2 ms."""


PREPARATIONS_MAX: Final = 20
"""Maximum number of segments whose start is read ahead at the same time. A start is read ahead for
a reader near the end of the previous segment."""
WANTED_CHUNKS: Final = 16
"""Maximum number of chunks of one very large batch that are loaded at the same time."""


class SegmentRead(NamedTuple):
    """Result of one read from a copied segment."""

    records: bytes
    """Whole batches. The first one contains the requested offset or, if no batch does, is the next
    one. Empty if there are no such batches, or if the first batch exceeds the maximum size of the
    read."""
    end_offset: Offset
    """Offset at which the reader continues: the offset after the returned records, or the end of
    the searched range if there are no records."""


class _OpenSegment(NamedTuple):
    """A copied segment with the index sections that every read needs."""

    source: ChunkedObject
    offsets: bytes
    """Offset index of the segment, in Kafka's format."""


class _Batch(NamedTuple):
    """A batch in a copied segment: its position in bytes, and its header."""

    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        """Position after the batch, in bytes."""
        return self.position + self.header.size_bytes


class RemoteReader:
    """Reader of the copied segments of a cluster.

    Each method raises StoreError if the object store fails, and may be cancelled. The methods have
    no timeout.
    """

    def __init__(
        self,
        cluster_id: str,
        requests: StoreRequests,
        indexes: RemoteIndexes,
        chunks: ChunkSource,
        sequential: SequentialReads,
        nursery: trio.Nursery,
        limits: ReaderLimits,
        counts: ReadCounts,
        errors: UnexpectedErrors,
    ) -> None:
        self._cluster_id = cluster_id
        self._requests = requests
        self._indexes = indexes
        self._chunks = chunks
        self._sequential = sequential
        self._nursery = nursery
        self._errors = errors
        self._turns = trio.Semaphore(limits.reads_at_once)
        self._prepared: set[RemoteSegmentId] = set()
        """Segments whose start is being read ahead, for readers that are near the end of the
        segment before."""
        self.counts = counts
        """Numbers of requests, of fetched bytes, and of chunks found in the caches, since the
        reader was opened."""

    @property
    def memory_bytes(self) -> int:
        """Total size of the chunks in memory, in bytes."""
        return self._chunks.memory_bytes

    def set_gets_at_once(self, count: int) -> None:
        """Change the maximum number of requests to the object store that are in flight at the same
        time."""
        self._requests.set_limit(count)

    def set_index_file_bytes(self, bytes_max: int) -> None:
        """Change the maximum size of the cached indexes on disk, in bytes. A background task then
        removes files in excess of the maximum."""
        self._nursery.start_soon(self._resize_indexes, bytes_max)

    async def shrink_files(self, size_bytes: int) -> int:
        """Remove files of the cache until `size_bytes` are freed, or no file is left: first chunks
        of records, and then indexes, which are smaller and save more requests. Returns the number
        of freed bytes."""
        freed = await self._chunks.files.shrink(size_bytes)
        if freed < size_bytes:
            freed += await self._indexes.files.shrink(size_bytes - freed)
        return freed

    async def _resize_indexes(self, bytes_max: int) -> None:
        try:
            await self._indexes.files.resize(bytes_max)
        except Exception as error:
            self._errors.note("cache of copied segments", "size", error)

    async def read(
        self,
        topic: str,
        segment: RemoteSegment,
        offset: Offset,
        *,
        end_offset: Offset,
        bytes_max: int,
        at_least_one: bool = True,
        following: RemoteSegment | None = None,
    ) -> SegmentRead:
        """Return batches of a copied segment, beginning with the batch that contains `offset`. If
        no batch contains it, the next batch is the first.

        All returned batches begin below `end_offset`. Their total size is at most `bytes_max` and
        `READ_BYTES_MAX`. With `at_least_one`, the first batch is returned even if it is larger.
        `following` is the segment in which the reader is expected to continue, or None.
        """
        assert segment.start_offset <= offset <= segment.end_offset
        end_offset = min(end_offset, Offset(segment.end_offset + 1))
        async with self._turns:
            opened = await self._open(topic, segment)
            position = position_before(opened.offsets, segment.start_offset, offset)
            bytes_max = min(bytes_max, READ_BYTES_MAX)
            distance = self._sequential.distance(*segment.id[:2], offset)
            self._load_around(opened, position, bytes_max, distance)
            if distance and following is not None:
                self._prepare_if_near(topic, opened, position, distance, following)
            first = await self._first_batch(opened, segment, position, offset)
            if first is None or first.header.base_offset >= end_offset:
                return SegmentRead(b"", end_offset)
            if first.header.size_bytes > bytes_max:
                if not at_least_one:
                    return SegmentRead(b"", offset)
                last = first
            else:
                last = await self._last_batch(
                    opened, segment, first, first.position + bytes_max, end_offset
                )
            records = await self._bytes(opened, first.position, last.end)
        self._sequential.advance(*segment.id[:2], offset, last.header.end_offset)
        return SegmentRead(records, last.header.end_offset)

    async def offset_for_timestamp(
        self,
        topic: str,
        segment: RemoteSegment,
        timestamp_ms: int,
        *,
        start_offset: Offset,
        end_offset: Offset,
    ) -> TimestampedOffset | None:
        """Return the first record of a segment in `[start_offset, end_offset)` whose timestamp is
        at least `timestamp_ms`, or None if there is no such record."""
        async with self._turns:
            opened = await self._open(topic, segment)
            times = await self._indexes.section(opened.source.manifest, IndexKind.TIMES)
            before = offset_before_timestamp(times, segment.start_offset, timestamp_ms)
            start = max(before, start_offset)
            scanning = BatchScan(
                _SegmentScanner(self._bytes),
                opened,
                position=_valid(
                    opened, position_before(opened.offsets, segment.start_offset, start)
                ),
                end=segment.size_bytes,
                first_offset=segment.start_offset,
                base_offset=None,
                is_crc_checked=False,
                block_bytes=SCAN_BLOCK_BYTES,
            )
            try:
                found = await first_of_scan(
                    scanning, timestamp_ms, start_offset=start_offset, end_offset=end_offset
                )
            except CorruptDataError as error:
                raise _corrupt(opened, error.where) from None
            if found is None and scanning.problem is not None:
                raise _corrupt(opened, scanning.problem)
            return found

    async def aborted(
        self, topic: str, segment: RemoteSegment, offset: Offset, end_offset: Offset
    ) -> AbortedInSegment:
        """Return the aborted transactions in a segment's index that overlap `[offset,
        end_offset)`."""
        if segment.has_empty_transaction_index:
            return AbortedInSegment([], is_complete=False)
        manifest = await self._indexes.manifest(self._names(topic, segment), segment)
        aborts = await self._indexes.section(manifest, IndexKind.TRANSACTIONS)
        return aborted_between(aborts, offset, end_offset)

    async def producer_snapshot(self, topic: str, segment: RemoteSegment) -> bytes:
        """Return the producers of the partition at the end of a segment, as the bytes of a producer
        snapshot (`.snapshot`)."""
        manifest = await self._indexes.manifest(self._names(topic, segment), segment)
        return await self._indexes.section(manifest, IndexKind.PRODUCERS)

    async def epochs(self, topic: str, segment: RemoteSegment) -> tuple[EpochEntry, ...]:
        """Return the leader epochs of the log up to the end of a segment, oldest first."""
        manifest = await self._indexes.manifest(self._names(topic, segment), segment)
        data = await self._indexes.section(manifest, IndexKind.EPOCHS)
        try:
            return decode_epochs(data).entries
        except CorruptDataError as error:
            raise CorruptObjectError(
                f"the leader epochs of segment {segment.id.segment_id} are wrong: {error.where}"
            ) from None

    async def forget(self, segment: RemoteSegmentId) -> None:
        """Remove a segment from the caches, because its objects will be deleted."""
        await self._indexes.forget(segment.segment_id)
        await self._chunks.forget(segment.segment_id)

    async def _open(self, topic: str, segment: RemoteSegment) -> _OpenSegment:
        manifest = await self._indexes.manifest(self._names(topic, segment), segment)
        checksums, offsets = await self._indexes.positions(manifest)
        return _OpenSegment(ChunkedObject(manifest, checksums), offsets)

    def _names(self, topic: str, segment: RemoteSegment) -> SegmentNames:
        return SegmentNames(
            cluster_id=self._cluster_id,
            topic=topic,
            topic_id=segment.id.topic_id,
            partition=segment.id.partition,
            start_offset=segment.start_offset,
            segment_id=segment.id.segment_id,
        )

    def _load_around(
        self, opened: _OpenSegment, position: int, bytes_max: int, distance: int
    ) -> None:
        """Start to load the chunks of a read. For a sequential reader, also start to load the next
        chunks."""
        size = opened.source.manifest.size_bytes
        first = _valid(opened, position) // CHUNK_BYTES
        end = (min(position + max(bytes_max, 1), size) - 1) // CHUNK_BYTES + 1
        self._chunks.want(opened.source, first, end)
        if distance:
            self._chunks.read_ahead(opened.source, end, end + distance)

    def _prepare_if_near(
        self,
        topic: str,
        opened: _OpenSegment,
        position: int,
        distance: int,
        following: RemoteSegment,
    ) -> None:
        """Start to load the beginning of the following segment, if a reader is near the end of its
        segment."""
        left = opened.source.manifest.size_bytes - position
        if left > distance * CHUNK_BYTES or following.id in self._prepared:
            return
        if len(self._prepared) < PREPARATIONS_MAX:
            self._prepared.add(following.id)
            self._nursery.start_soon(self._prepare, topic, following)

    async def _prepare(self, topic: str, segment: RemoteSegment) -> None:
        try:
            opened = await self._open(topic, segment)
            self._chunks.read_ahead(opened.source, 0, RUN_CHUNKS)
        except StoreError:
            pass  # the reader will notice
        except Exception as error:
            self._errors.note("read of an object store", segment.id.segment_id, error)
        finally:
            self._prepared.discard(segment.id)

    async def _first_batch(
        self, opened: _OpenSegment, segment: RemoteSegment, position: int, offset: Offset
    ) -> _Batch | None:
        """Return the first batch, at or after `position`, whose last offset is at or above
        `offset`. Returns None if the segment has no such batch."""
        headers = _Headers(self._chunks, opened, segment)
        while position < opened.source.manifest.size_bytes:
            batch = await headers.batch_at(position)
            if batch.header.last_offset >= offset:
                return batch
            position = batch.end
        return None

    async def _last_batch(
        self,
        opened: _OpenSegment,
        segment: RemoteSegment,
        first: _Batch,
        position_end: int,
        end_offset: Offset,
    ) -> _Batch:
        """Return the last batch, at or after `first`, that ends at or before `position_end` and
        begins below `end_offset`."""
        headers = _Headers(self._chunks, opened, segment)
        last = first
        # A batch at an entry may end beyond the position, but the one at the entry before does not.
        before = position_end
        for _ in range(2):
            indexed = last_batch_before(
                opened.offsets, segment.start_offset, position=before, end_offset=end_offset
            )
            if indexed is None or indexed.position <= first.position:
                break
            batch = await headers.batch_at(_valid(opened, indexed.position))
            if batch.header.last_offset != indexed.offset:
                raise _corrupt(opened, f"offset {indexed.offset} is not at {indexed.position}")
            if batch.end <= position_end:
                last = batch
                break
            before = indexed.position - 1
        while last.end < min(position_end, opened.source.manifest.size_bytes):
            batch = await headers.batch_at(last.end)
            if batch.end > position_end or batch.header.base_offset >= end_offset:
                break
            last = batch
        return last

    async def _bytes(self, opened: _OpenSegment, start: int, end: int) -> bytes:
        """Return the bytes of a segment's records from position `start` to position `end`."""
        if end - start > BATCH_BYTES_MAX:
            raise _corrupt(opened, f"a batch has {end - start} bytes")
        first, last = start // CHUNK_BYTES, (end - 1) // CHUNK_BYTES
        parts: list[memoryview] = []
        for n in range(first, last + 1):
            if n % WANTED_CHUNKS == 0 or n == first:
                self._chunks.want(opened.source, n, min(n + WANTED_CHUNKS, last + 1))
            begin = n * CHUNK_BYTES
            chunk = await self._chunks.chunk(opened.source, n)
            parts.append(memoryview(chunk)[max(start - begin, 0) : end - begin])
        return b"".join(parts)


class _Headers:
    """Batch headers of one segment, which are read from its chunks and checked."""

    def __init__(self, chunks: ChunkSource, opened: _OpenSegment, segment: RemoteSegment) -> None:
        self._chunks = chunks
        self._opened = opened
        self._segment = segment
        self._number = -1
        self._chunk = b""
        self._count = 0

    async def batch_at(self, position: int) -> _Batch:
        """Return the batch at a position. Raises CorruptObjectError if there is no batch, if it has
        offsets outside the segment's range, or if it ends beyond the object."""
        self._count += 1
        if self._count % BATCHES_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
        number, at = divmod(position, CHUNK_BYTES)
        if number != self._number:
            self._chunk = await self._chunks.chunk(self._opened.source, number)
            self._number = number
        data, size = self._chunk, self._opened.source.manifest.size_bytes
        if len(data) - at < BATCH_HEADER_BYTES and position + len(data) - at < size:
            rest = await self._chunks.chunk(self._opened.source, number + 1)
            data, at = data[at:] + rest[:BATCH_HEADER_BYTES], 0
        try:
            header = header_of_any_format(data, at)
        except CorruptDataError as error:
            raise _corrupt(self._opened, f"no batch at {position} ({error.where})") from None
        segment = self._segment
        if (
            not segment.start_offset
            <= header.base_offset
            <= header.last_offset
            <= (segment.end_offset)
        ):
            raise _corrupt(
                self._opened,
                f"the batch at {position} has offsets {header.base_offset} to {header.last_offset}",
            )
        if position + header.size_bytes > size:
            raise _corrupt(self._opened, f"the batch at {position} ends beyond the object")
        return _Batch(position, header)


class _SegmentScanner:
    """Adapter through which a scan of batches reads a copied segment."""

    def __init__(self, read: Callable[[_OpenSegment, int, int], Awaitable[bytes]]) -> None:
        self._read = read

    async def read(self, opened: _OpenSegment, position: int, size: int, /) -> bytes:
        """Return `size` bytes of a segment's records from a position."""
        return await self._read(opened, position, position + size)


def _valid(opened: _OpenSegment, position: int) -> int:
    """Return a position from the offset index. Raises CorruptObjectError if the position is not
    within the object with the records."""
    if not 0 <= position < opened.source.manifest.size_bytes:
        raise _corrupt(opened, f"the offset index contains position {position}")
    return position


def _corrupt(opened: _OpenSegment, problem: str) -> CorruptObjectError:
    key = opened.source.manifest.names.key(SegmentObject.LOG)
    return CorruptObjectError(f"object {key}: {problem}")


@asynccontextmanager
async def open_remote_reader(
    store: ObjectStore,
    disk: Disk,
    directory: str,
    *,
    cluster_id: str,
    limits: ReaderLimits,
    errors: UnexpectedErrors,
) -> AsyncIterator[RemoteReader]:
    """Open and yield a reader of the copied segments of a cluster. Its cache is in `directory`,
    which must contain no other files. Loads in progress are cancelled at the end of the block."""
    counts = ReadCounts()
    requests = StoreRequests(store, limits, counts)
    index_files, chunk_files = (
        CachedFiles(disk, f"{directory}/{name}", bytes_max, free_bytes_min=limits.files_free_bytes)
        for name, bytes_max in (
            ("indexes", limits.index_file_bytes),
            ("chunks", limits.chunk_file_bytes),
        )
    )
    await index_files.open()
    await chunk_files.open()
    async with trio.open_nursery() as nursery:
        memory: MemoryCache[FileKey, bytes] = MemoryCache(limits.index_memory_bytes)
        file_loads: SharedLoads[FileKey, bytes] = SharedLoads(nursery, errors)
        chunk_loads: SharedLoads[ChunkKey, bytes] = SharedLoads(nursery, errors)
        yield RemoteReader(
            cluster_id,
            requests,
            RemoteIndexes(requests, index_files, memory, file_loads),
            ChunkSource(requests, chunk_files, nursery, chunk_loads, limits, counts, errors),
            SequentialReads(first=RUN_CHUNKS, largest=limits.ahead_chunks),
            nursery,
            limits,
            counts,
            errors,
        )
        nursery.cancel_scope.cancel()
