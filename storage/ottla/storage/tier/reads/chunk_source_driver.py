"""Loader of chunks of copied segments' records: from memory, from the cache's files, or from the
object store.

A chunk is a part of fixed size of the object with a segment's records. Concurrent readers of a
chunk share one request. Adjacent chunks that are read ahead are fetched with one request. Every
chunk is compared with its checksum before a reader gets it.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

import trio

from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.tier.manifest import CHUNK_BYTES, SegmentManifest, chunk_count
from ottla.storage.tier.object_names import SegmentObject
from ottla.storage.tier.reads.cached_files_driver import CachedFiles
from ottla.storage.tier.reads.index_sections import checksum_at
from ottla.storage.tier.reads.memory_cache import MemoryCache
from ottla.storage.tier.reads.reader_limits import RUN_CHUNKS, ReaderLimits
from ottla.storage.tier.reads.requests_driver import ReadCounts, StoreRequests
from ottla.storage.tier.reads.shared_loads_driver import SharedLoads
from ottla.wire.crc import crc32c

ChunkKey = tuple[UUID, int]
"""Id of a segment, and the number of a chunk in the segment, from 0."""


class ChunkedObject(NamedTuple):
    """The object with the records of a copied segment, divided into chunks."""

    manifest: SegmentManifest
    checksums: bytes
    """CRC32C of each chunk, from the section CHECKSUMS of the segment's indexes."""

    @property
    def chunk_count(self) -> int:
        """Number of chunks in the object."""
        return chunk_count(self.manifest.size_bytes)

    def key(self, chunk: int) -> ChunkKey:
        """Return the cache key of a chunk. It contains the id of the upload. Chunks of other
        uploads therefore have other keys, even if these uploads contain the same offsets."""
        return self.manifest.segment_id, chunk


class ChunkSource:
    """Chunks of copied segments, which are cached and read ahead."""

    def __init__(
        self,
        requests: StoreRequests,
        files: CachedFiles,
        nursery: trio.Nursery,
        loads: SharedLoads[ChunkKey, bytes],
        limits: ReaderLimits,
        counts: ReadCounts,
        errors: UnexpectedErrors,
    ) -> None:
        self._requests = requests
        self.files = files
        """Cache of chunks in files."""
        self._nursery = nursery
        self._loads = loads
        self._counts = counts
        self._errors = errors
        self._ahead: set[ChunkKey] = set()
        """Chunks that were read ahead and have not been used yet."""
        self._ahead_max = limits.unused_chunks
        self._memory: MemoryCache[ChunkKey, bytes] = MemoryCache(
            limits.chunk_memory_bytes, self._ahead.discard
        )

    @property
    def memory_bytes(self) -> int:
        """Total size of the chunks in memory, in bytes."""
        return self._memory.size_bytes

    def want(self, source: ChunkedObject, first: int, end: int) -> None:
        """Start to load the chunks with the numbers `[first, end)`, which a reader needs now."""
        missing = [n for n in range(first, end) if not self._is_here(source.key(n))]
        for run in self._runs(source, missing):
            self._begin(source, run)

    def read_ahead(self, source: ChunkedObject, first: int, end: int) -> None:
        """Start to load the chunks with the numbers `[first, end)`, as far as they fit into the
        memory for read-ahead. They are loaded in groups of `RUN_CHUNKS`."""
        missing = [
            n
            for n in range(first, min(end, source.chunk_count))
            if not self._is_here(source.key(n))
        ]
        for run in self._runs(source, missing):
            is_short = len(run) < RUN_CHUNKS and run[-1] + 1 < source.chunk_count
            if is_short or len(self._ahead) + len(run) > self._ahead_max:
                return
            self._ahead.update(source.key(n) for n in run)
            self._begin(source, run)

    async def chunk(self, source: ChunkedObject, number: int) -> bytes:
        """Return the bytes of a chunk, which is loaded if necessary. Raises StoreError if that
        fails."""
        key = source.key(number)
        self._ahead.discard(key)
        found = self._memory.get(key)
        if found is not None:
            self._counts.memory_hits += 1
            return found
        if key not in self._loads:
            self._begin(source, [number])
        found = await self._loads.wait(key)
        self._ahead.discard(key)
        return found

    async def forget(self, segment_id: UUID) -> None:
        """Remove the chunks of a segment from memory and from the cache's files."""
        self._memory.drop_if(lambda key: key[0] == segment_id)
        await self.files.drop_if(lambda name: name.startswith(f"{segment_id}."))

    def _is_here(self, key: ChunkKey) -> bool:
        return key in self._memory or key in self._loads

    def _runs(self, source: ChunkedObject, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Yield runs of at most `RUN_CHUNKS` adjacent chunks. Either all chunks of a run are in the
        cache's files, or none are."""
        run: list[int] = []
        is_in_file = False
        for number in numbers:
            is_next = run and number == run[-1] + 1 and len(run) < RUN_CHUNKS
            if run and not (is_next and self._is_in_file(source, number) == is_in_file):
                yield run
                run = []
            run.append(number)
            is_in_file = self._is_in_file(source, number)
        if run:
            yield run

    def _is_in_file(self, source: ChunkedObject, number: int) -> bool:
        return _file_name(source.key(number)) in self.files

    def _begin(self, source: ChunkedObject, run: Sequence[int]) -> None:
        self._loads.begin([source.key(n) for n in run], partial(self._load, source, run))

    async def _load(self, source: ChunkedObject, run: Sequence[int]) -> list[bytes]:
        """Return the bytes of adjacent chunks: from the cache's files if all are there, otherwise
        from the object store."""
        try:
            found = await self._from_files(source, run)
            if found is None:
                found = await self._fetch(source, run)
        except BaseException:
            self._ahead.difference_update(source.key(n) for n in run)
            raise
        for n, chunk in zip(run, found, strict=True):
            self._memory.put(source.key(n), chunk, len(chunk))
            if source.key(n) not in self._memory:
                self._ahead.discard(source.key(n))
        return found

    async def _from_files(self, source: ChunkedObject, run: Sequence[int]) -> list[bytes] | None:
        names = [_file_name(source.key(n)) for n in run]
        if not all(name in self.files for name in names):
            return None
        found = []
        for n, name in zip(run, names, strict=True):
            chunk = await self.files.get(name)
            if chunk is None or crc32c(chunk) != checksum_at(source.checksums, n):
                await self.files.drop([name])
                return None
            found.append(chunk)
        self._counts.file_hits += len(found)
        return found

    async def _fetch(self, source: ChunkedObject, run: Sequence[int]) -> list[bytes]:
        start = run[0] * CHUNK_BYTES
        end = min((run[-1] + 1) * CHUNK_BYTES, source.manifest.size_bytes)

        async def problem_of(content: bytes) -> str | None:
            if len(content) != end - start:
                return f"{len(content)} bytes instead of {end - start}"
            view = memoryview(content)
            for at, n in enumerate(run):
                chunk = view[at * CHUNK_BYTES : (at + 1) * CHUNK_BYTES]
                if crc32c(chunk) != checksum_at(source.checksums, n):
                    return f"the CRC of chunk {n} is wrong"
                await trio.lowlevel.checkpoint()
            return None

        key = source.manifest.names.key(SegmentObject.LOG)
        content = await self._requests.get(key, start, end, problem_of)
        self._counts.store_chunks += len(run)
        if len(run) == 1:
            found = [content]
        else:
            view = memoryview(content)
            found = [
                bytes(view[at : at + CHUNK_BYTES]) for at in range(0, len(content), CHUNK_BYTES)
            ]
        if self.files.bytes_max:
            for n, chunk in zip(run, found, strict=True):
                self._nursery.start_soon(self._keep, _file_name(source.key(n)), chunk)
        return found

    async def _keep(self, name: str, chunk: bytes) -> None:
        try:
            await self.files.put(name, chunk)
        except Exception as error:
            self._errors.note("cache of copied segments", name, error)


def _file_name(key: ChunkKey) -> str:
    return f"{key[0]}.{key[1]}.chunk"
