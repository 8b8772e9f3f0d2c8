"""Writes the logs of restored partitions into the log directory of a new broker.

The files are the same as a broker would have written: segments with their indexes, leader epochs,
the producer snapshot and checkpoints. Records are compared with the CRC in the manifest while they
are written. If a log needs only a part of a segment, no indexes are written for this part. The
broker builds them at its first start.
"""

from collections.abc import AsyncIterator, Mapping
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.storage.directories.checkpoint_file import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    format_checkpoint,
)
from ottla.storage.directories.checkpoint_topics import CHECKPOINT_TOPICS_FILE, format_topic_ids
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.segments.epoch_cache import EpochCache
from ottla.storage.segments.files import (
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from ottla.storage.segments.partition_metadata import encode_partition_metadata
from ottla.storage.tier.bucket_driver import Progress, log_ranges, read_index
from ottla.storage.tier.manifest import IndexKind, SegmentManifest
from ottla.storage.tier.store_seam import ObjectStore
from ottla.storage.tier.stored_partition import Piece, StoredPartition
from ottla.wire.batch import parse_header

INDEX_SUFFIXES = {
    IndexKind.OFFSETS: OFFSET_INDEX,
    IndexKind.TIMES: TIME_INDEX,
    IndexKind.TRANSACTIONS: TRANSACTION_INDEX,
}
BATCH_BYTES_MAX = 256 << 20
"""Maximum size in bytes of a batch in a segment that is restored only in part. Such a batch is read
into memory completely."""
FLUSHES_AT_ONCE = 16


class CheckpointedLogs:
    """Logs of a log directory, with the offsets for its checkpoint files."""

    def __init__(self) -> None:
        self.topic_ids: dict[TopicPartition, UUID] = {}
        self.starts: dict[TopicPartition, Offset] = {}
        self.ends: dict[TopicPartition, Offset] = {}

    def add(
        self, at: TopicPartition, topic_id: UUID, *, start_offset: Offset, end_offset: Offset
    ) -> None:
        """Add a log whose records are flushed and committed up to its end offset."""
        self.topic_ids[at], self.starts[at], self.ends[at] = topic_id, start_offset, end_offset

    async def write(self, disk: Disk, log_dir: str) -> None:
        """Write the checkpoint files of the log directory."""
        for name, data in (
            (CHECKPOINT_TOPICS_FILE, format_topic_ids(self.topic_ids)),
            (RECOVERY_POINT_FILE, format_checkpoint(self.ends)),
            (LOG_START_FILE, format_checkpoint(self.starts)),
            (HIGH_WATERMARK_FILE, format_checkpoint(self.ends)),
        ):
            await disk.write_atomically(f"{log_dir}/{name}", data)


async def write_logs(
    disk: Disk,
    store: ObjectStore,
    log_dir: str,
    logs: Mapping[TopicPartition, tuple[UUID, StoredPartition]],
    checkpointed: CheckpointedLogs,
    *,
    on_bytes: Progress = lambda _: None,
) -> None:
    """Write logs into a log directory, and add them to its checkpoints. Raises CorruptDataError if
    a segment is damaged, and StoreError if the object store fails."""
    for at, (topic_id, log) in logs.items():
        await write_log(
            disk, store, f"{log_dir}/{at.topic}-{at.partition}", topic_id, log, on_bytes
        )
        checkpointed.add(at, topic_id, start_offset=log.start_offset, end_offset=log.end_offset)


async def write_log(
    disk: Disk,
    store: ObjectStore,
    directory: str,
    topic_id: UUID,
    log: StoredPartition,
    on_bytes: Progress = lambda _: None,
) -> None:
    """Write the log of a partition into a new directory, and make it durable."""
    await disk.makedirs(directory)
    for piece in log.pieces:
        await write_piece(disk, store, directory, piece, on_bytes)
    await _write_snapshot(disk, store, directory, log.pieces[-1].manifest)
    _write(disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}", EpochCache(log.epochs).encode())
    _write(disk, f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
    await _flush(disk, directory)


async def write_piece(
    disk: Disk,
    store: ObjectStore,
    directory: str,
    piece: Piece,
    on_bytes: Progress = lambda _: None,
) -> None:
    """Write a segment, or the part of it that a log needs, into a directory. The files are not
    durable yet."""
    file = disk.open(f"{directory}/{file_name(piece.start_offset, LOG)}", create=True)
    try:
        file.set_size(0)
        size = 0
        content = log_ranges(store, piece.manifest, on_bytes=on_bytes)
        async for data in content if piece.is_whole else _part_of(content, piece):
            await trio.to_thread.run_sync(file.pwrite, size, [data])
            size += len(data)
    finally:
        file.close()
    if piece.is_whole:
        await write_indexes(disk, store, directory, piece.manifest)


async def write_indexes(
    disk: Disk, store: ObjectStore, directory: str, manifest: SegmentManifest
) -> None:
    """Write the index files of a segment into a directory. The files are not durable yet."""
    for kind, suffix in INDEX_SUFFIXES.items():
        if manifest.section(kind) is not None:
            data = await read_index(store, manifest, kind)
            _write(disk, f"{directory}/{file_name(manifest.start_offset, suffix)}", data)


async def _write_snapshot(
    disk: Disk, store: ObjectStore, directory: str, manifest: SegmentManifest
) -> None:
    """Write the producer snapshot at the end of a log. `manifest` describes the last segment of the
    log."""
    data = await read_index(store, manifest, IndexKind.PRODUCERS)
    end_offset = Offset(manifest.end_offset + 1)
    _write(disk, f"{directory}/{file_name(end_offset, SNAPSHOT)}", data)


def _write(disk: Disk, path: str, data: bytes) -> None:
    """Write a file, which is not durable before a call of `_flush`."""
    file = disk.open(path, create=True)
    try:
        file.set_size(0)
        file.pwrite(0, [data])
    finally:
        file.close()


async def _flush(disk: Disk, directory: str) -> None:
    """Make all files of a directory durable. Files are flushed concurrently, which is faster."""
    names = iter(await disk.listdir(directory))

    async def work() -> None:
        for name in names:
            file = disk.open(f"{directory}/{name}")
            try:
                await disk.fsync(file)
            finally:
                file.close()

    async with trio.open_nursery() as nursery:
        for _ in range(FLUSHES_AT_ONCE):
            nursery.start_soon(work)
    await disk.fsync_directory(directory)


async def _part_of(content: AsyncIterator[bytes], piece: Piece) -> AsyncIterator[bytes]:
    """Yield the batches of a segment that belong to a piece of the log. `content` yields the bytes
    of the segment."""
    waiting = bytearray()
    async for data in content:
        waiting += data
        at = 0
        kept: list[bytes] = []
        while len(waiting) - at >= BATCH_HEADER_BYTES:
            header = parse_header(waiting, at)
            if header.size_bytes > BATCH_BYTES_MAX:
                raise CorruptDataError(f"a batch of {header.size_bytes} bytes in {piece.manifest}")
            if len(waiting) - at < header.size_bytes:
                break
            if piece.start_offset <= header.base_offset < piece.end_offset:
                kept.append(bytes(waiting[at : at + header.size_bytes]))
            at += header.size_bytes
        del waiting[:at]
        if kept:
            yield b"".join(kept)
