"""The v2 record batch as the log sees it: a 61-byte header in front of opaque records (KIP-98).

It reads headers, checks CRCs and patches what a leader sets; it never looks at records (that is
`records.py`) and never copies them.  Base offset, length and leader epoch stand before the CRC's
range, so a leader patches them without a new CRC; a LogAppendTime stamp needs one.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.wire.crc import crc32c

MAGIC: Final = 2
LENGTH_END: Final = 12
"""Base offset and length: what the length field does not count."""
BATCH_LENGTH_MIN: Final = BATCH_HEADER_BYTES - LENGTH_END
PREFIX_BYTES: Final = 16
"""Base offset, length and leader epoch: what a leader patches without a new CRC."""
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_START: Final = 21
"""The CRC covers the batch from its attributes to its end."""
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_SEQUENCE: Final = -1
NO_PRODUCER_EPOCH: Final = -1
SEQUENCE_COUNT: Final = 1 << 31
"""Sequences wrap from 2^31 - 1 to 0."""

HEADER: Final = Struct(">qiibIhiqqqhii")
PREFIX: Final = Struct(">qii")
"""Base offset, length, leader epoch."""
_BASE_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_TIMESTAMP: Final = Struct(">q")
_unpack_header: Final = HEADER.unpack_from

assert HEADER.size == BATCH_HEADER_BYTES
assert PREFIX.size == PREFIX_BYTES

Buffer = bytes | bytearray | memoryview


class TimestampType(IntEnum):
    """Who stamps the records of a batch: their producer, or the leader that appends them."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes in front of a batch's records, as numbers."""

    base_offset: Offset
    batch_length: int
    partition_leader_epoch: Epoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole batch, header included."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> Offset:
        """Return the offset of the last record (also when compaction took that record away)."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def end_offset(self) -> Offset:
        """Return the offset after the last one: the base offset of the next batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record, -1 when the producer is not idempotent."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_COUNT

    @property
    def codec(self) -> int:
        """Return the codec's number; `Codec(number)` refuses one that does not exist."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Say who stamped the records."""
        if self.attributes & LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records (markers, raft's own) and no data."""
        return self.attributes & CONTROL_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return when its tombstones may go (KIP-534); the base timestamp then holds it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


HeaderFields: TypeAlias = tuple[
    int, int, int, int, int, int, int, int, int, int, int, int, int
]  # fmt: skip
"""What the header's Struct unpacks: the fields of a BatchHeader, in their order."""

_new: Final = tuple.__new__


def header_of(fields: Sequence[Any]) -> BatchHeader:
    """Return unpacked fields as a header."""
    header: BatchHeader = _new(BatchHeader, fields)
    return header


def parse_header(data: Buffer, at: int = 0) -> BatchHeader:
    """Read the header at `at`; CorruptDataError when it is cut off, not v2 or impossibly short.

    The batch itself may reach beyond `data`, and its CRC is not looked at.
    """
    if len(data) - at < BATCH_HEADER_BYTES:
        raise CorruptDataError(f"batch header at {at}: only {len(data) - at} bytes left")
    header = header_of(_unpack_header(data, at))
    if header.magic != MAGIC:
        raise CorruptDataError(f"batch header at {at}: magic {header.magic}, not {MAGIC}")
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptDataError(f"batch header at {at}: length {header.batch_length} is too small")
    return header


def check_crc(data: Buffer, at: int, header: BatchHeader) -> bool:
    """Return whether the batch at `at` is whole and its CRC is the header's."""
    end = at + header.size_bytes
    if end > len(data):
        return False
    return crc32c(memoryview(data)[at + CRC_START : end]) == header.crc


def batches(
    data: Buffer, *, is_partial_end_allowed: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch of `data`, which holds whole batches only.

    A fetch may cut the last batch off: with `is_partial_end_allowed` the iteration ends before it
    instead of raising CorruptDataError.
    """
    at = 0
    size = len(data)
    while at < size:
        if is_partial_end_allowed and size - at < BATCH_HEADER_BYTES:
            return
        header = parse_header(data, at)
        end = at + header.batch_length + LENGTH_END
        if end > size:
            if is_partial_end_allowed:
                return
            raise CorruptDataError(f"batch at {at}: {end - at} bytes long, {size - at} are left")
        yield at, header
        at = end


def patch_in_place(
    buffer: bytearray | memoryview, at: int, *, base_offset: Offset, leader_epoch: Epoch
) -> None:
    """Set what the leader assigns; the CRC stays valid, for it does not cover these fields."""
    _BASE_OFFSET.pack_into(buffer, at, base_offset)
    _EPOCH.pack_into(buffer, at + LENGTH_END, leader_epoch)


def patch_log_append_time(buffer: bytearray | memoryview, at: int, *, now_ms: int) -> None:
    """Stamp the whole batch with the leader's time and set the new CRC."""
    header = parse_header(buffer, at)
    _ATTRIBUTES.pack_into(buffer, at + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG)
    patch_max_timestamp(buffer, at, max_timestamp=now_ms)


def patch_max_timestamp(buffer: bytearray | memoryview, at: int, *, max_timestamp: int) -> None:
    """Set the maximum timestamp of a batch, and the new CRC."""
    header = parse_header(buffer, at)
    _TIMESTAMP.pack_into(buffer, at + MAX_TIMESTAMP_AT, max_timestamp)
    crc = crc32c(memoryview(buffer)[at + CRC_START : at + header.size_bytes])
    _CRC.pack_into(buffer, at + CRC_AT, crc)


def patched_prefix(header: BatchHeader, *, base_offset: Offset, leader_epoch: Epoch) -> bytes:
    """Return the first 16 bytes as the leader writes them; the rest is gathered unchanged."""
    return PREFIX.pack(base_offset, header.batch_length, leader_epoch)


def patched_header(
    data: Buffer, at: int, *, base_offset: Offset, leader_epoch: Epoch, log_append_time_ms: int
) -> bytes:
    """Return all 61 bytes as the leader writes them under LogAppendTime, with the new CRC.

    `data` stays as it is; the records after the header are gathered unchanged.
    """
    header = parse_header(data, at)
    patched = bytearray(memoryview(data)[at : at + BATCH_HEADER_BYTES])
    patch_in_place(patched, 0, base_offset=base_offset, leader_epoch=leader_epoch)
    _ATTRIBUTES.pack_into(patched, ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG)
    _TIMESTAMP.pack_into(patched, MAX_TIMESTAMP_AT, log_append_time_ms)
    records = memoryview(data)[at + BATCH_HEADER_BYTES : at + header.size_bytes]
    crc = crc32c(records, crc32c(memoryview(patched)[CRC_START:]))
    _CRC.pack_into(patched, CRC_AT, crc)
    return bytes(patched)
