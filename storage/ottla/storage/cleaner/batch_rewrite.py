"""Computation of the new bytes of a batch that log compaction changes: it removes records, sets a
delete horizon, or empties the batch. Pure.

Kept records are copied unchanged; only their count, the largest timestamp and the CRC are new.
Offsets, sequences, epochs, producer, attributes and the base timestamp are unchanged; the
timestamps of records are relative to the base timestamp.

A delete horizon replaces the base timestamp (KIP-534). The timestamp of each kept record is then
rewritten relative to the horizon, so that its absolute value does not change.
"""

from collections.abc import Sequence

from ottla.model.errors import CorruptDataError
from ottla.model.limits import BATCH_HEADER_BYTES, INT32_MAX, INT64_MAX
from ottla.storage.cleaner.record_work import KeptRecords
from ottla.wire.batch import (
    CODEC_MASK,
    CRC_AT,
    CRC_START,
    DELETE_HORIZON_FLAG,
    HEADER,
    LENGTH_END,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
)
from ottla.wire.batch_builder import varint
from ottla.wire.compression import Codec, codec_of, compress
from ottla.wire.crc import crc32c
from ottla.wire.records import Body, read_varint

HORIZON_MS_MAX = 1 << 62
"""Latest delete horizon of a batch, in ms since 1970. A later horizon would have no other effect,
and timestamps relative to it would not fit into 64 bits."""
TIMESTAMP_MS_MIN = -(1 << 61)
"""Earliest record timestamp, in ms since 1970, whose difference from every delete horizon fits into
64 bits."""


def kept_bytes(body: Body, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return the joined bytes of several ranges of a batch body. A range is a pair of start and end
    position."""
    view = memoryview(body.data)
    return b"".join([view[start:end] for start, end in ranges])


def rewritten_batch(body: Body, verdict: KeptRecords, *, horizon_ms: int | None = None) -> bytes:
    """Return a batch that contains only the kept records, of which there must be at least one.
    `horizon_ms` (ms since 1970) becomes the batch's delete horizon, after which tombstones may be
    dropped. None leaves the horizon unchanged.

    The horizon is not set if a timestamp relative to it would not fit into 64 bits. Tombstones of
    such a batch are kept.
    """
    header = body.header
    records = kept_bytes(body, verdict.ranges)
    is_append_time = header.attributes & LOG_APPEND_TIME_FLAG != 0
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is not None:
        rebased: bytes | None = records
        if not is_append_time:  # otherwise all have the largest timestamp
            rebased = _rebased(records, base_timestamp, horizon_ms)
        if rebased is not None:
            records = rebased
            attributes |= DELETE_HORIZON_FLAG
            base_timestamp = horizon_ms
    return _batch(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if is_append_time else verdict.max_timestamp_ms,
            record_count=verdict.kept_count,
        ),
        compress(codec_of(header.codec), records),
    )


def stamped_control_batch(body: Body, horizon_ms: int) -> bytes:
    """Return a control batch with `horizon_ms` (ms since 1970) as its delete horizon. Everything
    else in the batch except the CRC is unchanged."""
    header = body.header
    verdict = KeptRecords(
        header.record_count, [(body.start, body.end)], header.max_timestamp, False, 0
    )
    return rewritten_batch(body, verdict, horizon_ms=horizon_ms)


def emptied_batch(header: BatchHeader) -> bytes:
    """Return an empty batch with the offsets and sequence numbers of a batch whose records are all
    dropped.

    The empty batch has no timestamp, because it has no record with a timestamp, and no index entry
    may refer to one. An entry of the formats v0 and v1, which cannot be empty, becomes a v2 batch.
    """
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG) | Codec.NONE
    return _batch(
        header._replace(
            magic=MAGIC,
            attributes=attributes,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _batch(header: BatchHeader, records: bytes) -> bytes:
    size = BATCH_HEADER_BYTES + len(records)
    if size > INT32_MAX:
        raise CorruptDataError(f"batch at offset {header.base_offset}: {size} bytes do not fit")
    batch = bytearray(HEADER.pack(*header._replace(batch_length=size - LENGTH_END)))
    crc = crc32c(records, crc32c(memoryview(batch)[CRC_START:]))
    batch[CRC_AT:CRC_START] = crc.to_bytes(CRC_START - CRC_AT, "big")
    batch += records
    return bytes(batch)


def _rebased(records: bytes, base_timestamp: int, new_base: int) -> bytes | None:
    """Return records whose timestamps are relative to `new_base` instead of `base_timestamp` (ms).
    Returns None if a difference is too large."""
    shift_ms = base_timestamp - new_base
    rebased = bytearray()
    at, size = 0, len(records)
    while at < size:
        length, start = read_varint(records, at, size)
        at = start + length
        delta, rest_at = read_varint(records, start + 1, at)
        if not TIMESTAMP_MS_MIN <= base_timestamp + delta <= INT64_MAX:
            return None
        stamp = varint(delta + shift_ms)
        rebased += varint(1 + len(stamp) + at - rest_at)
        rebased.append(records[start])
        rebased += stamp
        rebased += records[rest_at:at]
    return bytes(rebased)
