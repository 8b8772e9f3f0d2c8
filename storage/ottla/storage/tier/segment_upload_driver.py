"""Upload of a closed segment to an object store, and deletion of a copied one.

An upload writes the object with the records first, then the object with the indexes, and the
manifest last. A manifest therefore exists only if the other objects were complete. A deletion
removes the manifest first. After an error, or if the caller is cancelled, any of the objects may
exist, and may even appear later. The caller records the upload as failed, deletes the objects with
`delete_segments`, and uses a new segment id for the next attempt.

CRC, offsets and leader epoch of each batch are checked during the upload. A segment whose file is
damaged on this disk is refused, because its copy would replace the intact ones of other replicas.
The check costs some 2 µs a batch.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, TypeVar
from uuid import UUID

import trio

from ottla.model.errors import OttlaError
from ottla.model.ids import NO_EPOCH, NodeId, Offset
from ottla.model.values import frozen
from ottla.storage.segments.batch_scan import BatchScan, ScannedBlock
from ottla.storage.segments.epoch_cache import EpochCache
from ottla.storage.tier.lineage import epochs_with_records
from ottla.storage.tier.manifest import (
    CHECKSUM_BYTES,
    CHUNK_BYTES,
    ENTRY_BYTES,
    SEGMENT_BYTES_MAX,
    IndexKind,
    IndexSection,
    SegmentManifest,
    encode_manifest,
    problem_of,
)
from ottla.storage.tier.object_names import SegmentNames, SegmentObject
from ottla.storage.tier.segment_source import SegmentSource
from ottla.storage.tier.stepped_crc_driver import crc_of_large
from ottla.storage.tier.store_seam import ObjectNotFoundError, ObjectStore, StoreError
from ottla.wire.batch import MAGIC
from ottla.wire.crc import crc32c

T = TypeVar("T")

Throttle = Callable[[int], Awaitable[None]]
"""Function that waits until a number of bytes may be sent to the object store."""

SCAN_BLOCK_BYTES: Final = 256 << 10
"""Number of bytes of batches that are checked per event-loop iteration during an upload. With fewer
bytes, more calls are passed to worker threads. With more bytes, the event loop is blocked for
longer: 256 KiB in small batches take 3 ms."""
ATTEMPTS_MAX: Final = 3
"""Maximum number of attempts to store a small object, such as a manifest. If a response is lost,
only this request is repeated, not the upload of the whole segment."""
RETRY_PAUSE_S: Final = 0.5
"""Pause in seconds before the second attempt to store a small object. It is doubled before each
further attempt."""
DELETE_BATCH: Final = 300
"""Number of copied segments whose objects are deleted with one call of the object store. S3 deletes
up to 1000 objects with one request."""


class SegmentFaultError(OttlaError):
    """Error if a local segment cannot be copied because its records, indexes and leader epochs
    contradict each other or exceed a limit. A further attempt would also fail. The message is one
    sentence."""


@frozen(kw_only=True)
class SegmentUpload:
    """Identity of one upload of a segment, and data for its manifest that the segment itself does
    not contain."""

    cluster_id: str
    topic: str
    topic_id: UUID
    partition: int
    segment_id: UUID
    """Id of this upload. No other upload may have used it."""
    partition_count: int
    topic_settings: Mapping[str, str]
    broker_id: NodeId
    event_timestamp_ms: int

    def names(self, start_offset: Offset) -> SegmentNames:
        """Return the names of the upload's objects, for a segment that begins at `start_offset`."""
        return SegmentNames(
            cluster_id=self.cluster_id,
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            start_offset=start_offset,
            segment_id=self.segment_id,
        )


async def no_throttle(byte_count: int) -> None:
    """Return without waiting: the default function of an upload whose rate is not limited."""


async def upload_segment(
    store: ObjectStore,
    source: SegmentSource,
    upload: SegmentUpload,
    *,
    throttle: Throttle = no_throttle,
) -> SegmentManifest:
    """Upload a segment to the object store, and return its manifest. At any time, only a few MiB of
    the records or one index are in memory.

    Raises SegmentFaultError if the segment cannot be copied, StoreError if the store fails, and
    OSError if the disk fails. The caller must set a deadline, because a store may never answer.
    """
    if not 0 < source.size_bytes <= SEGMENT_BYTES_MAX:
        raise _fault(source, f"has {source.size_bytes} bytes")
    names = upload.names(source.base_offset)
    records = _RecordStream(source, throttle)
    async with aclosing(records.parts()) as parts:
        await store.put_stream(names.key(SegmentObject.LOG), parts)
    indexes = await _indexes_of(source, records.checksums)
    content = b"".join(indexes.values())
    manifest = await _manifest_of(source, upload, records.crc, indexes)
    await throttle(len(content))
    await _repeated(
        lambda: (
            store.put_stream(names.key(SegmentObject.INDEXES), _parts_of(content))
            if len(content) > CHUNK_BYTES
            else store.put(names.key(SegmentObject.INDEXES), content)
        )
    )
    await _check_size(store, names.key(SegmentObject.LOG), source.size_bytes)
    await _check_size(store, names.key(SegmentObject.INDEXES), len(content))
    data = encode_manifest(manifest)
    await _repeated(lambda: store.put(names.key(SegmentObject.MANIFEST), data))
    return manifest


async def delete_segments(store: ObjectStore, segments: Sequence[SegmentNames]) -> None:
    """Delete the objects of copied segments, the manifests first. Objects that do not exist are not
    an error, so that a failed call can be repeated. Raises StoreError if the store fails."""
    for at in range(0, len(segments), DELETE_BATCH):
        batch = segments[at : at + DELETE_BATCH]
        await store.delete([names.key(SegmentObject.MANIFEST) for names in batch])
        await store.delete(
            [
                names.key(kind)
                for names in batch
                for kind in (SegmentObject.INDEXES, SegmentObject.LOG)
            ]
        )


class _RecordStream:
    """The records of a segment during its upload. They are read and checked in parts, and their
    checksums are computed."""

    def __init__(self, source: SegmentSource, throttle: Throttle) -> None:
        self._source = source
        self._throttle = throttle
        self._epoch = NO_EPOCH
        """Leader epoch of the batch that was checked last."""
        self._later = deque(
            epochs_with_records(
                source.epochs, start_offset=source.base_offset, end_offset=source.end_offset
            )
        )
        """Leader epochs of the segment that begin after the batch that was checked last."""
        self.crc = 0
        """CRC32C of all parts that were read so far."""
        self.checksums = bytearray()
        """CRC32C of each part that was read so far, in the format of the section CHECKSUMS."""

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the content of the segment's `.log` file in parts, which are the chunks of the
        object. Raises SegmentFaultError at the first batch that is damaged or contradicts the
        segment."""
        source = self._source
        scanning = BatchScan(
            self,
            source,
            position=0,
            end=source.size_bytes,
            first_offset=source.base_offset,
            base_offset=source.base_offset,
            is_crc_checked=True,
            block_bytes=SCAN_BLOCK_BYTES,
        )
        waiting = bytearray()
        while (block := await scanning.next_block()) is not None:
            self._check(block)
            waiting += block.data[: block.size_bytes]
            while len(waiting) >= CHUNK_BYTES:
                yield await self._part(bytes(memoryview(waiting)[:CHUNK_BYTES]))
                del waiting[:CHUNK_BYTES]
        if scanning.problem is not None or scanning.valid_end != source.size_bytes:
            problem = scanning.problem or f"only {scanning.valid_end} bytes were read"
            raise _fault(source, f"is damaged: {problem}")
        if waiting:
            yield await self._part(bytes(waiting))

    async def read(self, source: SegmentSource, position: int, size: int, /) -> bytes:
        """Return a range of bytes of the segment's `.log` file, for the check of its batches."""
        return await source.read_log(position, position + size)

    def _check(self, block: ScannedBlock) -> None:
        """Check that the offsets and leader epochs of a block's batches agree with the description
        of the segment."""
        source = self._source
        for _, header in block.batches:
            offset = header.base_offset
            if header.last_offset >= source.end_offset:
                raise _fault(source, f"contains offset {header.last_offset}, beyond its end")
            while self._later and self._later[0].start_offset <= offset:
                self._epoch = self._later.popleft().epoch
            # The epoch of records below the log start may be unknown.
            is_known = header.magic == MAGIC and self._epoch != NO_EPOCH
            if is_known and header.partition_leader_epoch != self._epoch:
                raise _fault(
                    source,
                    f"has leader epoch {header.partition_leader_epoch} at offset {offset}, but the"
                    f" log's leader epoch there is {self._epoch}",
                )

    async def _part(self, part: bytes) -> bytes:
        await self._throttle(len(part))
        self.crc = crc32c(part, self.crc)
        self.checksums += crc32c(part).to_bytes(CHECKSUM_BYTES, "big")
        return part


async def _indexes_of(source: SegmentSource, checksums: bytearray) -> dict[IndexKind, bytes]:
    """Return the contents of the sections in the object with the segment's indexes, in order."""
    epochs = [entry for entry in source.epochs if entry.start_offset < source.end_offset]
    sections = {
        IndexKind.CHECKSUMS: bytes(checksums),
        IndexKind.OFFSETS: await source.offset_index(),
        IndexKind.TIMES: await source.time_index(),
        IndexKind.PRODUCERS: await source.producer_snapshot(),
        IndexKind.EPOCHS: EpochCache(tuple(epochs)).encode(),
        IndexKind.TRANSACTIONS: await source.transaction_index(),
    }
    for kind, entry_bytes in ENTRY_BYTES.items():
        if len(sections[kind]) % entry_bytes:
            raise _fault(source, f"has {len(sections[kind])} bytes of {kind.value} in its index")
    if not sections[IndexKind.TRANSACTIONS]:
        del sections[IndexKind.TRANSACTIONS]
    return sections


async def _manifest_of(
    source: SegmentSource,
    upload: SegmentUpload,
    log_crc: int,
    indexes: Mapping[IndexKind, bytes],
) -> SegmentManifest:
    sections = []
    at = 0
    for kind, content in indexes.items():
        sections.append(IndexSection(kind, at, at + len(content), await crc_of_large(content)))
        at += len(content)
    manifest = SegmentManifest(
        cluster_id=upload.cluster_id,
        topic=upload.topic,
        partition_count=upload.partition_count,
        topic_settings=upload.topic_settings,
        topic_id=upload.topic_id,
        partition=upload.partition,
        segment_id=upload.segment_id,
        start_offset=source.base_offset,
        end_offset=Offset(source.end_offset - 1),
        broker_id=upload.broker_id,
        max_timestamp_ms=source.max_timestamp_ms,
        event_timestamp_ms=upload.event_timestamp_ms,
        size_bytes=source.size_bytes,
        log_crc=log_crc,
        leader_epochs=epochs_with_records(
            source.epochs, start_offset=source.base_offset, end_offset=source.end_offset
        ),
        has_empty_transaction_index=IndexKind.TRANSACTIONS not in indexes,
        index_sections=tuple(sections),
    )
    if (problem := problem_of(manifest)) is not None:
        raise _fault(source, f"cannot be described: {problem}")
    try:
        encode_manifest(manifest)
    except ValueError as error:
        raise _fault(source, f"cannot be described: {error}") from None
    return manifest


async def _repeated(call: Callable[[], Awaitable[T]]) -> T:
    """Call a function of the object store, and return its result. After a temporary error, the call
    is repeated following a pause."""
    pause_s = RETRY_PAUSE_S
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await call()
        except StoreError as error:
            if not error.is_retriable:
                raise
        await trio.sleep(pause_s)
        pause_s *= 2
    return await call()


async def _check_size(store: ObjectStore, key: str, size_bytes: int) -> None:
    """Raise StoreError if an object that was just stored is missing or has another size."""
    try:
        found = await _repeated(lambda: store.head(key))
    except ObjectNotFoundError:
        raise StoreError(f"the object store lost {key} just after it was stored") from None
    if found.size_bytes != size_bytes:
        raise StoreError(
            f"the object store has {found.size_bytes} bytes of {key}, and {size_bytes} were stored"
        )


async def _parts_of(content: bytes) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of `content` in parts of `CHUNK_BYTES`."""
    view = memoryview(content)
    for at in range(0, len(content), CHUNK_BYTES):
        yield bytes(view[at : at + CHUNK_BYTES])


def _fault(source: SegmentSource, problem: str) -> SegmentFaultError:
    return SegmentFaultError(f"the segment at offset {source.base_offset} {problem}")
