"""Header of the v2 record batch. For the log, a batch is a 61-byte header and opaque records
(KIP-98). Pure.

The module reads headers, checks CRCs and patches the fields that a leader sets. It never reads
records (`records.py` does) and never copies them. Base offset, length and leader epoch precede the
range that the CRC covers. A leader can therefore patch them without a new CRC; a LogAppendTime
stamp requires one.
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
"""Position in a batch of the end of the fields that the batch length does not include: the base
offset and the length itself."""
BATCH_LENGTH_MIN: Final = BATCH_HEADER_BYTES - LENGTH_END
PREFIX_BYTES: Final = 16
"""Size in bytes of the first fields of a batch, which a leader patches without a new CRC: base
offset, length and leader epoch."""
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_START: Final = 21
"""Position in a batch at which the CRC's range of bytes starts. The range extends from the
attributes to the end of the batch."""
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
"""Number of different sequence numbers of a producer. The number after 2^31 - 1 is 0."""

HEADER: Final = Struct(">qiibIhiqqqhii")
PREFIX: Final = Struct(">qii")
"""Struct of the first fields of a batch: base offset, length and leader epoch."""
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
    """Origin of the timestamps of a batch's records: the producer, or the leader that appends the
    batch."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The parsed 61-byte header of a v2 record batch."""

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
        """Size of the complete batch in bytes, including its header."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> Offset:
        """Offset of the batch's last record (even if compaction removed that record)."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def end_offset(self) -> Offset:
        """Offset after the batch's last record, which is the base offset of the next batch."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the batch's last record, or -1 if the producer is not idempotent."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_COUNT

    @property
    def codec(self) -> int:
        """Number of the batch's compression codec. `Codec(number)` raises ValueError if the number
        is unknown."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Origin of the timestamps of the batch's records: the producer or the leader."""
        if self.attributes & LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """True if the batch contains control records (transaction markers, or control records of
        raft) and no data."""
        return self.attributes & CONTROL_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time, in ms since 1970, from which the tombstones of the batch may be deleted (KIP-534).
        None if no such time is set. The batch stores it as its base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


HeaderFields: TypeAlias = tuple[
    int, int, int, int, int, int, int, int, int, int, int, int, int
]  # fmt: skip
"""The unpacked fields of a batch header, in the order of BatchHeader."""

_new: Final = tuple.__new__


def header_of(fields: Sequence[Any]) -> BatchHeader:
    """Return the BatchHeader with the given unpacked fields of a batch header."""
    header: BatchHeader = _new(BatchHeader, fields)
    return header


def parse_header(data: Buffer, at: int = 0) -> BatchHeader:
    """Return the header of the batch at position `at` of `data`. Raises CorruptDataError if the
    header is truncated or not v2, or if its batch length is impossibly small.

    The batch may extend beyond `data`, and its CRC is not checked.
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
    """Return whether the batch at position `at` of `data` is complete and matches the CRC in its
    header."""
    end = at + header.size_bytes
    if end > len(data):
        return False
    return crc32c(memoryview(data)[at + CRC_START : end]) == header.crc


def batches(
    data: Buffer, *, is_partial_end_allowed: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each batch in `data`, which must contain only complete
    batches.

    The end of a fetched range may cut the last batch off. With `is_partial_end_allowed`, the
    iteration ends before such a batch instead of raising CorruptDataError.
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
    """Set the fields of the batch at position `at` that the leader assigns: base offset and leader
    epoch. The CRC remains valid because it does not cover them."""
    _BASE_OFFSET.pack_into(buffer, at, base_offset)
    _EPOCH.pack_into(buffer, at + LENGTH_END, leader_epoch)


def patch_log_append_time(buffer: bytearray | memoryview, at: int, *, now_ms: int) -> None:
    """Set the leader's time `now_ms` as the timestamp of the whole batch (LogAppendTime), and
    update the CRC."""
    header = parse_header(buffer, at)
    _ATTRIBUTES.pack_into(buffer, at + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG)
    patch_max_timestamp(buffer, at, max_timestamp=now_ms)


def patch_max_timestamp(buffer: bytearray | memoryview, at: int, *, max_timestamp: int) -> None:
    """Set the maximum timestamp (in ms) in the header of the batch at position `at`, and update the
    CRC."""
    header = parse_header(buffer, at)
    _TIMESTAMP.pack_into(buffer, at + MAX_TIMESTAMP_AT, max_timestamp)
    crc = crc32c(memoryview(buffer)[at + CRC_START : at + header.size_bytes])
    _CRC.pack_into(buffer, at + CRC_AT, crc)


def patched_prefix(header: BatchHeader, *, base_offset: Offset, leader_epoch: Epoch) -> bytes:
    """Return the first 16 bytes of a batch with the given base offset and leader epoch. The caller
    writes the rest of the batch unchanged."""
    return PREFIX.pack(base_offset, header.batch_length, leader_epoch)


def patched_header(
    data: Buffer, at: int, *, base_offset: Offset, leader_epoch: Epoch, log_append_time_ms: int
) -> bytes:
    """Return the 61-byte header of a batch with the leader's fields for LogAppendTime, and the new
    CRC.

    `data` is not changed. The caller writes the records after the header unchanged.
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
