"""Compacts the logs of a broker that is stopped, as a cleaner would: gaps between offsets, on disk.

Of each key the last record stays, with its offset, and a batch keeps the offsets that its header
names.  Batches without records go, but for the last of a segment, whose header stays.  The segment
that is written last is left as it is.  Indexes go: a broker makes them again.
"""

from pathlib import Path

from crc32c import crc32c

from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.wire.batch import (
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CRC_AT,
    CRC_START,
    HEADER,
    BatchHeader,
    batches,
)
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.compression import codec_of
from ottla.wire.records import scan

LAST_OFFSET_DELTA_AT = 23
INDEXES = (".index", ".timeindex", ".txnindex")
CLEAN_MARKER = ".kafka_cleanshutdown"


def compact(log_directory: Path, topic: str) -> int:
    """Compact all partitions of a topic; return how many records went."""
    gone = 0
    for partition in sorted(log_directory.glob(f"{topic}-[0-9]*")):
        gone += _compact_partition(partition)
    # Without it the broker looks at every batch when it starts, and makes the indexes.
    (log_directory / CLEAN_MARKER).unlink(missing_ok=True)
    return gone


def _compact_partition(directory: Path) -> int:
    segments = sorted(directory.glob("*.log"))
    latest: dict[bytes | None, int] = {}
    for segment in segments:
        data = segment.read_bytes()
        for at, header in batches(data):
            for record in scan(data, at, header):
                latest[record.key] = record.offset
    gone = 0
    for segment in segments[:-1]:
        data = segment.read_bytes()
        kept: list[bytes] = []
        for at, header in batches(data):
            batch, dropped = _compact_batch(data, at, header, latest)
            gone += dropped
            is_last = at + header.size_bytes == len(data)
            kept.append(_header_alone(header) if is_last and not batch else batch)
        segment.write_bytes(b"".join(kept))
        for suffix in INDEXES:
            segment.with_suffix(suffix).unlink(missing_ok=True)
    return gone


def _compact_batch(
    data: bytes, at: int, header: BatchHeader, latest: dict[bytes | None, int]
) -> tuple[bytes, int]:
    """Return the batch without what came again later, and how many records that was."""
    builder = BatchBuilder()
    for record in scan(data, at, header):
        if latest[record.key] == record.offset:
            delta = record.offset - header.base_offset
            builder.append(
                record.timestamp_ms, record.key, record.value, record.headers, offset_delta=delta
            )
    dropped = header.record_count - builder.record_count
    if not dropped:
        return data[at : at + header.size_bytes], 0
    if not builder.record_count:
        return b"", dropped
    built = bytearray(
        builder.build(
            codec=codec_of(header.codec),
            base_offset=Offset(header.base_offset),
            leader_epoch=Epoch(header.partition_leader_epoch),
            producer_id=ProducerId(header.producer_id),
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
    )
    built[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = header.last_offset_delta.to_bytes(4)
    return _with_crc(built), dropped


def _header_alone(header: BatchHeader) -> bytes:
    found = header._replace(
        batch_length=BATCH_LENGTH_MIN, attributes=header.attributes & ~CODEC_MASK, record_count=0
    )
    return _with_crc(bytearray(HEADER.pack(*found)))


def _with_crc(batch: bytearray) -> bytes:
    batch[CRC_AT:CRC_START] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4)
    return bytes(batch)
