"""Reads the contents of a bucket without a cluster: its owner, and its segments with their
manifests, indexes and records.

Commands that list, verify and restore segments use this module. Every object is bounded and
checked, because others may write into the bucket. Each call to the store has a deadline.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import trio

from ottla.model.errors import CorruptDataError, NewerReleaseError
from ottla.storage.segments.epoch_cache import EpochEntry, decode_epochs
from ottla.storage.tier.bucket_scan import BucketScan, ListedSegment
from ottla.storage.tier.cluster_marker import (
    MARKER_BYTES_MAX,
    MARKER_KEY,
    decode_cluster_marker,
)
from ottla.storage.tier.manifest import (
    MANIFEST_BYTES_MAX,
    IndexKind,
    SegmentManifest,
    decode_manifest,
)
from ottla.storage.tier.object_names import (
    SegmentNames,
    SegmentObject,
    cluster_prefix,
)
from ottla.storage.tier.store_seam import (
    ObjectNotFoundError,
    ObjectRangeError,
    ObjectStore,
    StoreError,
    StoreRefusedError,
)
from ottla.storage.tier.stored_partition import (
    StoredPartition,
    newest_segment,
    stored_partition,
)
from ottla.wire.crc import crc32c

T = TypeVar("T")

CALL_TIMEOUT_S = 120.0
"""Timeout of one call to the object store, in seconds. Within a call, the library for object stores
repeats failed requests for 20 s."""
REQUESTS_AT_ONCE = 16
"""Maximum number of manifests that are requested at the same time. More would hardly be faster: a
store in the same region responds within 20 ms."""
RANGE_BYTES = 8 << 20
"""Maximum number of bytes that one request reads from a large object. At most two such ranges are
in memory."""

Progress = Callable[[int], None]
"""Function that is called with the number of objects (or bytes) that were read since its last
call."""


class ManifestFlaw(NamedTuple):
    """A segment whose manifest is missing or invalid, and the problem as text."""

    segment: ListedSegment
    problem: str
    is_missing: bool = False
    """True if the listed manifest does not exist. This is no damage: the listing was stale, or the
    segment was deleted in the meantime."""


async def read_owner(store: ObjectStore) -> str:
    """Return the id of the cluster that has reserved the store's prefix for itself. Raises
    StoreRefusedError if no cluster has reserved the prefix, and CorruptDataError if the object
    `cluster.json` is invalid."""
    try:
        found = await within_deadline(store.get(MARKER_KEY, 0, MARKER_BYTES_MAX + 1))
    except (ObjectNotFoundError, ObjectRangeError):
        raise StoreRefusedError(
            f"no cluster has used this place: it has no object {MARKER_KEY}"
        ) from None
    return decode_cluster_marker(found)


async def scan_bucket(
    store: ObjectStore, cluster_id: str, *, on_object: Progress = lambda _: None
) -> BucketScan:
    """Return the segments of a cluster in a bucket. Raises BucketTooLargeError, and the errors of
    the store."""
    scan = BucketScan(cluster_id)
    listing = store.entries(cluster_prefix(cluster_id))
    while True:
        try:
            entry = await within_deadline(listing.__anext__())
        except StopAsyncIteration:
            return scan
        scan.add(entry)
        on_object(1)


async def read_manifest(store: ObjectStore, names: SegmentNames) -> SegmentManifest:
    """Return the manifest of a segment. Raises CorruptDataError or NewerReleaseError if the
    manifest is invalid, and ObjectNotFoundError if it does not exist."""
    key = names.key(SegmentObject.MANIFEST)
    try:
        data = await within_deadline(store.get(key, 0, MANIFEST_BYTES_MAX + 1))
    except ObjectRangeError:
        raise CorruptDataError(f"manifest {key}: it is empty") from None
    return decode_manifest(data, key)


async def read_manifests(
    store: ObjectStore,
    segments: Iterable[ListedSegment],
    *,
    on_manifest: Progress = lambda _: None,
) -> tuple[list[SegmentManifest], list[ManifestFlaw]]:
    """Return the manifests of segments, in the order of the segments, and a ManifestFlaw for each
    manifest that is missing or invalid."""
    wanted = list(segments)
    found: list[SegmentManifest | ManifestFlaw | None] = [None] * len(wanted)
    places = iter(range(len(wanted)))

    async def work() -> None:
        for at in places:  # shared by all workers
            try:
                found[at] = await read_manifest(store, wanted[at].names)
            except (CorruptDataError, NewerReleaseError, ObjectNotFoundError) as error:
                is_missing = isinstance(error, ObjectNotFoundError)
                found[at] = ManifestFlaw(wanted[at], problem_in(error), is_missing)
            on_manifest(1)

    try:
        async with trio.open_nursery() as nursery:
            for _ in range(min(REQUESTS_AT_ONCE, len(wanted))):
                nursery.start_soon(work)
    except BaseExceptionGroup as group:
        failures = group.subgroup(StoreError)
        first = failures.exceptions[0] if failures else None
        if isinstance(first, StoreError) and group.split(StoreError)[1] is None:
            raise first from None  # the workers fail for one reason
        raise
    return (
        [one for one in found if isinstance(one, SegmentManifest)],
        [one for one in found if isinstance(one, ManifestFlaw)],
    )


async def read_index(store: ObjectStore, manifest: SegmentManifest, kind: IndexKind) -> bytes:
    """Return a section of a segment's indexes, or no bytes if the segment has no such section.
    Raises CorruptDataError if the section does not match its CRC."""
    key = manifest.names.key(SegmentObject.INDEXES)
    section = manifest.section(kind)
    if section is None or section.start == section.end:
        return b""
    try:
        data = await within_deadline(store.get(key, section.start, section.end))
    except ObjectRangeError:
        data = b""
    if len(data) != section.size_bytes:
        raise CorruptDataError(f"{key}: it ends within its section {kind.value}")
    if crc32c(data) != section.crc:
        raise CorruptDataError(f"{key}: its section {kind.value} does not match its CRC")
    return data


async def read_epochs(store: ObjectStore, manifest: SegmentManifest) -> Sequence[EpochEntry]:
    """Return the leader epochs of the log up to the end of a segment. Raises CorruptDataError if
    the stored epochs are damaged."""
    return decode_epochs(await read_index(store, manifest, IndexKind.EPOCHS)).entries


async def read_partition(
    store: ObjectStore, manifests: Sequence[SegmentManifest]
) -> StoredPartition:
    """Return the log of a partition. `manifests` are the manifests of all its segments, at least
    one. Raises CorruptDataError if the leader epochs in the newest segment are damaged."""
    return stored_partition(manifests, await read_epochs(store, newest_segment(manifests)))


async def log_ranges(
    store: ObjectStore, manifest: SegmentManifest, *, on_bytes: Progress = lambda _: None
) -> AsyncIterator[bytes]:
    """Yield the bytes of a segment's records in order. Raises CorruptDataError if the object is too
    short. After the last byte, raises CorruptDataError if the bytes do not match the manifest's
    CRC."""
    key = manifest.names.key(SegmentObject.LOG)
    crc, at = 0, 0
    while at < manifest.size_bytes:
        end = min(at + RANGE_BYTES, manifest.size_bytes)
        try:
            data = await within_deadline(store.get(key, at, end))
        except ObjectRangeError:
            data = b""
        if len(data) != end - at:
            raise CorruptDataError(f"{key}: it has less than {manifest.size_bytes} bytes")
        crc = crc32c(data, crc)
        at = end
        on_bytes(len(data))
        yield data
    if crc != manifest.log_crc:
        raise CorruptDataError(f"{key}: it does not match its CRC")


async def within_deadline(call: Awaitable[T]) -> T:
    """Return the result of a call to a store. Raises StoreError if the call takes longer than
    CALL_TIMEOUT_S."""
    with trio.move_on_after(CALL_TIMEOUT_S):
        return await call
    raise StoreError(f"the object store did not respond within {CALL_TIMEOUT_S:.0f} s")


def problem_in(error: Exception) -> str:
    """Return the problem that an exception about an object describes, as part of a sentence."""
    return error.where if isinstance(error, CorruptDataError) else str(error)
