"""Loads manifests and indexes of copied segments: from memory, from the cache's files, or from the
object store."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.errors import CorruptDataError, NewerReleaseError
from ottla.storage.tier.manifest import (
    MANIFEST_BYTES_MAX,
    IndexKind,
    IndexSection,
    SegmentManifest,
    decode_manifest,
)
from ottla.storage.tier.object_names import SegmentNames, SegmentObject
from ottla.storage.tier.reads.cached_files_driver import CachedFiles
from ottla.storage.tier.reads.memory_cache import MemoryCache
from ottla.storage.tier.reads.requests_driver import (
    CorruptObjectError,
    StoreRequests,
    right_size,
)
from ottla.storage.tier.reads.shared_loads_driver import SharedLoads
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.storage.tier.stepped_crc_driver import crc_of_large

MANIFEST: Final = "manifest"
POSITIONS: Final = "positions"
MANIFEST_COUNT_MAX: Final = 1000
"""Maximum number of decoded manifests in memory."""
PART_BYTES: Final = 8 << 20
"""Maximum number of bytes of an index section that one request fetches."""

Fetch = Callable[[], Awaitable[bytes]]
FileKey = tuple[UUID, str]
"""Id of a segment, and the kind of a cached file: MANIFEST, POSITIONS, or the name of an index
section."""


class BatchPositions(NamedTuple):
    """The two index sections that every read of a copied segment needs."""

    checksums: bytes
    """CRC32C of each chunk of the segment's records, four bytes each."""
    offsets: bytes
    """Offset index of the segment, in Kafka's format."""


class RemoteIndexes:
    """Manifests and index sections of copied segments, which are cached."""

    def __init__(
        self,
        requests: StoreRequests,
        files: CachedFiles,
        memory: MemoryCache[FileKey, bytes],
        loads: SharedLoads[FileKey, bytes],
    ) -> None:
        self._requests = requests
        self.files = files
        """Cache of manifests and index sections in files."""
        self._memory = memory
        self._loads = loads
        self._manifests: MemoryCache[UUID, SegmentManifest] = MemoryCache(MANIFEST_COUNT_MAX)
        self._positions: MemoryCache[UUID, BatchPositions] = MemoryCache(memory.bytes_max)

    async def manifest(self, names: SegmentNames, segment: RemoteSegment) -> SegmentManifest:
        """Return the manifest of a copied segment. Raises StoreError if the manifest cannot be
        read, or if it contradicts the segment's metadata."""
        manifest = self._manifests.get(names.segment_id)
        if manifest is None:
            key = names.key(SegmentObject.MANIFEST)
            fetch = partial(self._fetch_manifest, names)
            manifest = decode_manifest(await self._value((names.segment_id, MANIFEST), fetch), key)
            self._manifests.put(names.segment_id, manifest, 1)
        if not _is_same(manifest, segment):
            raise CorruptObjectError(
                f"the manifest of segment {names.segment_id} contradicts the segment's metadata"
            )
        return manifest

    async def section(self, manifest: SegmentManifest, kind: IndexKind) -> bytes:
        """Return an index section of a copied segment, or no bytes if the segment has no section of
        this kind. Raises StoreError if the section cannot be read."""
        section = manifest.section(kind)
        if section is None or not section.size_bytes:
            return b""
        key = (manifest.segment_id, kind.value)
        return await self._value(key, partial(self._fetch_sections, manifest, [section]))

    async def positions(self, manifest: SegmentManifest) -> BatchPositions:
        """Return the checksums and the offset index of a segment. These sections are adjacent in
        the object, and one request fetches them. Raises StoreError if they cannot be read."""
        sections = manifest.index_sections[:2]
        assert [section.kind for section in sections] == [IndexKind.CHECKSUMS, IndexKind.OFFSETS]
        found = self._positions.get(manifest.segment_id)
        if found is None:
            key = (manifest.segment_id, POSITIONS)
            both = await self._value(key, partial(self._fetch_sections, manifest, sections))
            size = sections[0].size_bytes
            found = BatchPositions(checksums=both[:size], offsets=both[size:])
            self._positions.put(manifest.segment_id, found, len(both))
            self._memory.drop(key)
        return found

    async def forget(self, segment_id: UUID) -> None:
        """Remove the manifest and the indexes of a segment from memory and from the cache's
        files."""
        self._manifests.drop(segment_id)
        self._positions.drop(segment_id)
        self._memory.drop_if(lambda key: key[0] == segment_id)
        await self.files.drop_if(lambda name: name.startswith(f"{segment_id}."))

    async def _value(self, key: FileKey, fetch: Fetch) -> bytes:
        found = self._memory.get(key)
        if found is None:
            found = await self._loads.value(key, partial(self._load, key, fetch))
        return found

    async def _load(self, key: FileKey, fetch: Fetch) -> bytes:
        name = f"{key[0]}.{key[1]}"
        content = await self.files.get(name)
        if content is None:
            content = await fetch()
            await self.files.put(name, content)
        self._memory.put(key, content, len(content))
        return content

    async def _fetch_manifest(self, names: SegmentNames) -> bytes:
        key = names.key(SegmentObject.MANIFEST)

        async def problem_of(content: bytes) -> str | None:
            try:
                decode_manifest(content, key)
            except CorruptDataError as error:
                return error.where
            except NewerReleaseError as error:
                return str(error)
            return None

        return await self._requests.get(key, 0, MANIFEST_BYTES_MAX + 1, problem_of)

    async def _fetch_sections(
        self, manifest: SegmentManifest, sections: Sequence[IndexSection]
    ) -> bytes:
        """Return adjacent index sections from the object store. Raises CorruptObjectError if their
        size or their CRCs are wrong."""
        key = manifest.names.key(SegmentObject.INDEXES)
        first, last = sections[0].start, sections[-1].end

        async def problem_of(content: bytes) -> str | None:
            if len(content) != last - first:
                return f"{len(content)} bytes instead of {last - first}"
            for section in sections:
                part = content[section.start - first : section.end - first]
                if await crc_of_large(part) != section.crc:
                    return f"the CRC of {section.kind.value} is wrong"
            return None

        if last - first <= PART_BYTES:
            return await self._requests.get(key, first, last, problem_of)
        parts = []
        for start in range(first, last, PART_BYTES):
            end = min(start + PART_BYTES, last)
            parts.append(await self._requests.get(key, start, end, right_size(end - start)))
        content = b"".join(parts)
        if (problem := await problem_of(content)) is not None:
            raise CorruptObjectError(f"object {key}: {problem}")
        return content


def _is_same(manifest: SegmentManifest, segment: RemoteSegment) -> bool:
    """Return whether a manifest and the metadata of a copied segment describe the same segment."""
    found = manifest.remote_segment
    return (
        found.id == segment.id
        and found.start_offset == segment.start_offset
        and found.end_offset == segment.end_offset
        and found.size_bytes == segment.size_bytes
        and found.leader_epochs == segment.leader_epochs
        and found.has_empty_transaction_index == segment.has_empty_transaction_index
    )
