"""Iteration over the batches of a `.log` as they are stored, damage included, for inspection tools.

Formats v0, v1 and v2 may follow each other in one file. Only one block of the file is in memory at
a time, because the length field of a batch may have any value. CRCs are computed block by block.
The iteration continues after a wrong CRC. It ends at the first bytes that are not a batch, with a
`Problem` that contains position and reason.

Recovery iterates over batches separately (`batch_scan`), because it must stop at damage that
inspection only reports.
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ottla.model.errors import CorruptDataError
from ottla.model.limits import BATCH_HEADER_BYTES, DECOMPRESSED_BATCH_BYTES_MAX
from ottla.storage.inspection.readable import Readable, Window
from ottla.wire.batch import (
    BATCH_LENGTH_MIN,
    CRC_START,
    HEADER,
    LENGTH_END,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    parse_header,
)
from ottla.wire.compression import codec_of
from ottla.wire.crc import crc32c
from ottla.wire.legacy import MESSAGE_BYTES_MIN, messages
from ottla.wire.records import Record, scan

_LEGACY = Struct(">qiIbb")
"""Layout of the header of a v0 or v1 message: offset, size, CRC, magic, attributes."""
_TIMESTAMP = Struct(">q")
_LEGACY_CRC_START = 16
_LEGACY_CODEC_MASK = 0x07
_NO_PRODUCER = -1
_NO_EPOCH = -1


class Problem(NamedTuple):
    """Corrupt bytes in a file, or preallocated space at its end, which is not damage."""

    position: int
    problem: str
    is_damage: bool = True


class BatchRow(NamedTuple):
    """Description of one batch of format v2, or of one message of format v0 or v1 together with its
    inner messages."""

    position: int
    base_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    leader_epoch: int
    codec: str
    timestamp_type: str
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    crc: int
    is_crc_valid: bool
    magic: int = MAGIC


def walk(file: Readable) -> Iterator[BatchRow | Problem]:
    """Yield the batches of a `.log` file. If the iteration ends before the end of the file, the
    last yielded value is the problem that ended it."""
    window = Window(file)
    at = 0
    while at < window.size_bytes:
        found = _at(file, window, at)
        yield found
        if isinstance(found, Problem):
            return
        at += found.size_bytes


def _at(file: Readable, window: Window, at: int) -> BatchRow | Problem:
    start = window.bytes_at(at, BATCH_HEADER_BYTES)
    if not any(start):
        return _zeros(window, at)
    if len(start) <= MAGIC_AT:
        return Problem(at, f"only {len(start)} bytes of a batch's header are there")
    magic = start[MAGIC_AT]
    if magic > MAGIC:
        return Problem(at, f"magic {magic} is none of 0, 1 and 2")
    if magic < MAGIC:
        return _legacy_row(file, window, at)
    if len(start) < BATCH_HEADER_BYTES:
        return Problem(at, f"only {len(start)} bytes of a batch's header are there")
    header = BatchHeader._make(HEADER.unpack_from(start))
    if header.batch_length < BATCH_LENGTH_MIN:
        return Problem(at, f"length {header.batch_length} is too small for a batch")
    if at + header.size_bytes > window.size_bytes:
        return _cut_off(at, header.size_bytes)
    crc = 0
    for block in window.blocks(at + CRC_START, at + header.size_bytes):
        crc = crc32c(block, crc)
    return _row(at, header, is_crc_valid=crc == header.crc)


def _zeros(window: Window, at: int) -> Problem:
    other = window.first_nonzero(at)
    if other is None:
        size = window.size_bytes - at
        return Problem(at, f"{size} zero bytes follow, as in a preallocated file", is_damage=False)
    return Problem(at, f"{other - at} zero bytes lie before other bytes")


def _cut_off(at: int, size: int) -> Problem:
    return Problem(at, f"a batch of {size} bytes is cut off by the file's end")


def _codec_name(number: int) -> str:
    try:
        return codec_of(number).name.lower()
    except CorruptDataError:
        return f"unknown ({number})"


def _row(at: int, header: BatchHeader, *, is_crc_valid: bool) -> BatchRow:
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return BatchRow(
        position=at,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        size_bytes=header.size_bytes,
        leader_epoch=header.partition_leader_epoch,
        codec=_codec_name(header.codec),
        timestamp_type="LogAppendTime" if is_append_time else "CreateTime",
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
        crc=header.crc,
        is_crc_valid=is_crc_valid,
    )


def _legacy_row(file: Readable, window: Window, at: int) -> BatchRow | Problem:
    """Return the row that describes one message of v0 or v1. The row of a wrapper has the offsets
    of its wrapped messages."""
    head = window.bytes_at(at, _LEGACY.size + _TIMESTAMP.size)
    if len(head) < _LEGACY.size + _TIMESTAMP.size:
        return Problem(at, f"only {len(head)} bytes of a message's header are there")
    offset, length, crc, magic, attributes = _LEGACY.unpack_from(head)
    size = length + LENGTH_END
    if length < MESSAGE_BYTES_MIN[magic]:
        return Problem(at, f"length {length} is too small for a message")
    if at + size > window.size_bytes:
        return _cut_off(at, size)
    found_crc = 0
    for block in window.blocks(at + _LEGACY_CRC_START, at + size):
        found_crc = zlib.crc32(block, found_crc)
    is_append_time = magic > 0 and attributes & LOG_APPEND_TIME_FLAG != 0
    timestamp_ms = _TIMESTAMP.unpack_from(head, _LEGACY.size)[0] if magic else NO_TIMESTAMP
    codec = attributes & _LEGACY_CODEC_MASK
    row = BatchRow(
        position=at,
        base_offset=offset,
        last_offset=offset,
        record_count=1,
        size_bytes=size,
        leader_epoch=_NO_EPOCH,
        codec=_codec_name(codec),
        timestamp_type="LogAppendTime" if is_append_time else "CreateTime",
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=_NO_PRODUCER,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        last_sequence=NO_SEQUENCE,
        is_transactional=False,
        is_control=False,
        delete_horizon_ms=None,
        crc=crc,
        is_crc_valid=found_crc == crc,
        magic=magic,
    )
    return _with_wrapped(file, row) if codec and row.is_crc_valid else row


def _with_wrapped(file: Readable, row: BatchRow) -> BatchRow:
    """Return the row of a wrapper message with the first offset and the number of its inner
    messages. The row is returned unchanged if the wrapper cannot be decompressed."""
    try:
        offsets = [record.offset for record in records_of(file, row)]
    except CorruptDataError:
        return row  # a dump of its records shows the reason
    if not offsets:
        return row
    return row._replace(base_offset=offsets[0], record_count=len(offsets))


def records_of(file: Readable, row: BatchRow) -> Iterator[Record]:
    """Yield the records of a batch that `walk` has found.

    Raises CorruptDataError if the data is corrupt, or if it needs more memory than any valid batch.
    """
    if row.size_bytes > DECOMPRESSED_BATCH_BYTES_MAX:
        raise CorruptDataError(f"its {row.size_bytes} bytes are too many to be unpacked")
    data = file.pread(row.position, row.size_bytes)
    if len(data) < row.size_bytes:
        raise CorruptDataError("it was cut off while it was read")
    if row.magic == MAGIC:
        yield from scan(data, 0, parse_header(data))
        return
    for message in messages(data):
        yield Record(message.offset, message.timestamp_ms, message.key, message.value, ())
