"""Scanner of the records in a v2 batch: one short loop with bounds checks, in pure Python.

The scanner is used by code that needs keys or values (the dump tool, the client, the cleaner,
raft's image loader), and never by the broker's handlers of Produce and Fetch. A field that exceeds
its record, a wrong count or a surplus byte raises CorruptDataError. The module must remain
compilable by mypyc: typed locals, no closures, nothing dynamic.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES, DECOMPRESSED_BATCH_BYTES_MAX
from ottla.wire.batch import LOG_APPEND_TIME_FLAG, BatchHeader, Buffer
from ottla.wire.compression import Codec, codec_of, decompress

RECORD_BYTES_MIN = 7
"""Size in bytes of the smallest record: length, attributes, timestamp and offset delta, key and
value length, header count."""
VARINT_SHIFT_MAX = 63
"""Largest bit shift in decoding the varint of an int64, which has at most ten bytes."""
NULL_LENGTH = 0x01
"""Encoded length of a null key or value: the varint of -1."""

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]
R = TypeVar("R")

_new: Final = tuple.__new__


class Body(NamedTuple):
    """The uncompressed records of one batch: `data[start:end]`."""

    header: BatchHeader
    data: Buffer
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Size in bytes of the batch's uncompressed records."""
        return self.end - self.start


class Record(NamedTuple):
    """One record of a batch. A key or value of None is null."""

    offset: Offset
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


def _record(
    offset: Offset,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: RecordHeaders,
) -> Record:
    # Half the cost of calling Record(…) once for every record.
    return _new(Record, (offset, timestamp_ms, key, value, headers))


def scan(
    data: Buffer, at: int, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> Iterator[Record]:
    """Yield the records of the batch at position `at` of `data`. `header` is the parsed header of
    the batch.

    Raises CorruptDataError if the data is corrupt, or if its decompressed size exceeds
    `limit_bytes`.
    """
    return scan_body(record_body(data, at, header, limit_bytes), header)


def record_body(
    data: Buffer, at: int, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> bytes:
    """Return the bytes of the records of the batch at position `at`, decompressed if necessary."""
    end = at + header.size_bytes
    if end > len(data):
        raise CorruptDataError(f"batch at {at}: it ends beyond the {len(data)} bytes at hand")
    packed = memoryview(data)[at + BATCH_HEADER_BYTES : end]
    codec = codec_of(header.codec)
    if codec is Codec.NONE:
        return bytes(packed)
    return decompress(codec, packed, limit_bytes)


def scan_body(body: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records in `body`, the uncompressed records of a batch. `header` is the header of
    the batch."""
    return scan_body_as(_record, body, header)


def scan_body_as(
    make: Callable[[Offset, int, bytes | None, bytes | None, RecordHeaders], R],
    body: bytes,
    header: BatchHeader,
) -> Iterator[R]:
    """Yield an object for each record in `body`, the uncompressed records of a batch. `make`
    creates it from the fields of `Record`.

    One-byte varints are decoded inline, because most varints have one byte. A function call for
    each of them would take most of the time.
    """
    base_offset: int = header.base_offset
    base_timestamp: int = header.base_timestamp
    last_offset_delta: int = header.last_offset_delta
    append_time: int = header.max_timestamp
    is_append_time: bool = header.attributes & LOG_APPEND_TIME_FLAG != 0
    size: int = len(body)
    at: int = 0
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > size:
        raise CorruptDataError(f"record count {header.record_count} in {size} bytes")
    for _ in range(header.record_count):
        length, at = read_varint(body, at, size)
        end = at + length
        if length < RECORD_BYTES_MIN - 1 or end > size:
            raise CorruptDataError(f"record at {at}: length {length} of {size - at} bytes left")
        at += 1  # skip the attributes, which are unused
        if at < end and (byte := body[at]) < 0x80:
            timestamp_delta = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            timestamp_delta, at = read_varint(body, at, end)
        if at < end and (byte := body[at]) < 0x80:
            offset_delta = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            offset_delta, at = read_varint(body, at, end)
        if offset_delta < 0 or offset_delta > last_offset_delta:
            raise CorruptDataError(f"record at {at}: offset delta {offset_delta} is out of range")
        key: bytes | None = None
        if at < end and body[at] == NULL_LENGTH:
            at += 1
        else:
            key, at = _read_bytes(body, at, end)
        value, at = _read_bytes(body, at, end)
        headers: RecordHeaders = ()
        if at == end - 1 and body[at] == 0:
            at = end
        else:
            headers, at = _read_headers(body, at, end)
        if at != end:
            raise CorruptDataError(f"record at {at}: {end - at} bytes follow its last field")
        yield make(
            Offset(base_offset + offset_delta),
            append_time if is_append_time else base_timestamp + timestamp_delta,
            key,
            value,
            headers,
        )
    if at != size:
        raise CorruptDataError(f"{size - at} bytes follow the last record of the batch")


def read_varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    """Decode the zigzag varint at position `at`. Returns its value and the position of its end,
    which must be before `end`."""
    if at >= end:
        raise CorruptDataError(f"varint at {at}: it is cut off")
    byte: int = body[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number: int = byte & 0x7F
    shift: int = 7
    while at < end and shift <= VARINT_SHIFT_MAX:
        byte = body[at]
        at += 1
        if byte < 0x80:
            number |= byte << shift
            return (number >> 1) ^ -(number & 1), at
        number |= (byte & 0x7F) << shift
        shift += 7
    raise CorruptDataError(f"varint before {at}: it is cut off or too long")


def _read_bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(body, at, end)
    if length < 0:
        if length != -1:
            raise CorruptDataError(f"field at {at}: length {length}")
        return None, at
    if length > end - at:
        raise CorruptDataError(f"field at {at}: length {length} of {end - at} bytes left")
    return body[at : at + length], at + length


def _read_headers(body: bytes, at: int, end: int) -> tuple[RecordHeaders, int]:
    count, at = read_varint(body, at, end)
    if count < 0 or count > end - at:
        raise CorruptDataError(f"record header count {count} in {end - at} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        raw_name, at = _read_bytes(body, at, end)
        if raw_name is None:
            raise CorruptDataError(f"record header at {at}: its name is null")
        content, at = _read_bytes(body, at, end)
        try:
            name = raw_name.decode()
        except UnicodeDecodeError:
            raise CorruptDataError(f"record header at {at}: its name is not UTF-8") from None
        headers.append((name, content))
    return tuple(headers), at
