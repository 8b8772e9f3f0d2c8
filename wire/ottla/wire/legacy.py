"""Reader of message sets in the formats v0 and v1, which Kafka 4 still serves but never writes.
Pure.

Logs written by old brokers are kept and served unchanged. The log treats each entry as a batch
(`entry_header`). An ordinary entry is a batch of one record. A wrapper is a batch of an unknown
number of records up to the entry's offset.

An entry consists of offset, size and the message: crc32, magic, attributes, from v1 on a timestamp,
key, value. A compressed message (a wrapper) contains a message set. In v1 the offsets in the
wrapper are relative, and the wrapper itself has the offset of its last message (KIP-31, KIP-32).
LZ4 in v0 has a non-standard frame checksum (KAFKA-3160) and is reported as corrupt.
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ottla.model.errors import CorruptDataError
from ottla.model.ids import NO_EPOCH, Offset
from ottla.model.limits import BATCH_HEADER_BYTES, DECOMPRESSED_BATCH_BYTES_MAX
from ottla.wire.batch import (
    CODEC_MASK,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    check_crc,
    parse_header,
)
from ottla.wire.compression import Codec, codec_of, decompress

ENTRY_HEADER_BYTES = 12
MESSAGE_BYTES_MIN = {0: 14, 1: 22}
"""Size in bytes of the smallest v0 or v1 message, with null key and null value, by magic (format
version)."""
LOG_APPEND_TIME_FLAG = 0x08

_ENTRY = Struct(">qi")
_CRC_MAGIC_ATTRIBUTES = Struct(">Ibb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")


ENTRY_BYTES_MIN = {magic: ENTRY_HEADER_BYTES + size for magic, size in MESSAGE_BYTES_MIN.items()}
ENTRY_BYTES_LEAST = min(ENTRY_BYTES_MIN.values())
TIMESTAMP_AT = ENTRY_HEADER_BYTES + 6


class LegacyMessage(NamedTuple):
    """One message in the format v0 or v1. In v0 it has no timestamp (-1)."""

    offset: Offset
    magic: int
    codec: Codec
    is_log_append_time: bool
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def magic_at(data: Buffer, at: int = 0) -> int:
    """Return the magic (format version) of the batch or entry at position `at`. It has the same
    position in every format."""
    if len(data) - at <= MAGIC_AT:
        raise CorruptDataError(f"entry at {at}: only {len(data) - at} bytes left")
    return data[at + MAGIC_AT]


def is_entry_at(data: Buffer, at: int) -> bool:
    """Return whether the entry at position `at` has the format v0 or v1. Only its magic byte is
    checked."""
    left = len(data) - at
    return left > MAGIC_AT and left >= ENTRY_BYTES_MIN.get(data[at + MAGIC_AT], left + 1)


def timestamp_at(data: Buffer, at: int) -> int:
    """Return the timestamp in ms of the v0 or v1 entry at position `at`, or -1 in v0."""
    if data[at + MAGIC_AT] == 0:
        return NO_TIMESTAMP
    return int(_TIMESTAMP.unpack_from(data, at + TIMESTAMP_AT)[0])


def entry_header(data: Buffer, at: int) -> BatchHeader:
    """Return the v0 or v1 entry at position `at` in the form of a batch header, whose last offset
    is the entry's offset.

    Raises CorruptDataError if the entry is truncated, not of v0 or v1, or impossibly short.
    """
    if not is_entry_at(data, at):
        raise CorruptDataError(f"entry at {at}: cut off, or neither v0 nor v1")
    offset, size = _ENTRY.unpack_from(data, at)
    crc, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(data, at + ENTRY_HEADER_BYTES)
    if size < MESSAGE_BYTES_MIN[magic]:
        raise CorruptDataError(f"entry at {at}: length {size} is too small")
    timestamp_ms = timestamp_at(data, at)
    return BatchHeader(
        base_offset=Offset(offset),
        batch_length=size,
        partition_leader_epoch=NO_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes & (CODEC_MASK | LOG_APPEND_TIME_FLAG),
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )


def header_of_any_format(data: Buffer, at: int = 0) -> BatchHeader:
    """Return the header of the batch, or of the v0 or v1 entry, at position `at`. Raises
    CorruptDataError if `data` has neither of them there."""
    try:
        return parse_header(data, at)
    except CorruptDataError:
        if is_entry_at(data, at):
            return entry_header(data, at)
        raise


def is_crc_right(data: Buffer, at: int, header: BatchHeader) -> bool:
    """Return whether the complete batch or v0 or v1 entry at position `at` matches the CRC in its
    header."""
    if header.magic == MAGIC:
        return check_crc(data, at, header)
    return zlib.crc32(memoryview(data)[at + MAGIC_AT : at + header.size_bytes]) == header.crc


def batches_of_any_format(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each batch, or v0 or v1 entry, in `data`. A truncated batch
    or entry at the end is omitted."""
    at = 0
    size = len(data)
    while size - at >= BATCH_HEADER_BYTES or is_entry_at(data, at):
        header = header_of_any_format(data, at)
        end = at + header.batch_length + LENGTH_END
        if end > size:
            return
        yield at, header
        at = end


def messages(
    data: Buffer, limit_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> Iterator[LegacyMessage]:
    """Yield every message of a v0 or v1 message set, including those in compressed wrappers.

    Raises CorruptDataError if the data is corrupt or if a wrapper's decompressed size exceeds
    `limit_bytes`.
    """
    for message in shallow_messages(data):
        if message.codec is Codec.NONE:
            yield message
        else:
            yield from _wrapped(message, limit_bytes)


def shallow_messages(data: Buffer) -> Iterator[LegacyMessage]:
    """Yield the entries of a v0 or v1 message set, without decompressing wrappers."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        if len(view) - at < ENTRY_HEADER_BYTES:
            raise CorruptDataError(f"message at {at}: its header is cut off")
        offset, size = _ENTRY.unpack_from(view, at)
        at += ENTRY_HEADER_BYTES
        if not min(MESSAGE_BYTES_MIN.values()) <= size <= len(view) - at:
            raise CorruptDataError(f"message at {at}: size {size} of {len(view) - at} bytes left")
        yield _message(Offset(offset), view[at : at + size])
        at += size


def _message(offset: Offset, body: memoryview) -> LegacyMessage:
    crc, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(body)
    if magic not in MESSAGE_BYTES_MIN:
        raise CorruptDataError(f"message {offset}: magic {magic} is not 0 or 1")
    if len(body) < MESSAGE_BYTES_MIN[magic]:
        raise CorruptDataError(f"message {offset}: {len(body)} bytes are too few")
    if zlib.crc32(body[_LENGTH.size :]) != crc:
        raise CorruptDataError(f"message {offset}: its CRC does not match")
    at = _CRC_MAGIC_ATTRIBUTES.size
    timestamp_ms = NO_TIMESTAMP
    if magic == 1:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(body, at)
        at += _TIMESTAMP.size
    key, at = _bytes_at(body, at)
    value, at = _bytes_at(body, at)
    if at != len(body):
        raise CorruptDataError(f"message {offset}: {len(body) - at} bytes follow its value")
    return LegacyMessage(
        offset=offset,
        magic=magic,
        codec=codec_of(attributes & 0x07),
        is_log_append_time=magic == 1 and attributes & LOG_APPEND_TIME_FLAG != 0,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
    )


def _bytes_at(body: memoryview, at: int) -> tuple[bytes | None, int]:
    if len(body) - at < _LENGTH.size:
        raise CorruptDataError(f"length at {at}: it is cut off")
    (length,) = _LENGTH.unpack_from(body, at)
    at += _LENGTH.size
    if length == -1:
        return None, at
    if not 0 <= length <= len(body) - at:
        raise CorruptDataError(f"field at {at}: length {length} of {len(body) - at} bytes left")
    return bytes(body[at : at + length]), at + length


def _wrapped(wrapper: LegacyMessage, limit_bytes: int) -> list[LegacyMessage]:
    if wrapper.value is None:
        raise CorruptDataError(f"message {wrapper.offset}: it is compressed but has no value")
    inner = list(shallow_messages(decompress(wrapper.codec, wrapper.value, limit_bytes)))
    if any(message.codec is not Codec.NONE for message in inner):
        raise CorruptDataError(f"message {wrapper.offset}: a wrapped message is compressed itself")
    if wrapper.magic == 0 or not inner:
        return inner
    base_offset = wrapper.offset - inner[-1].offset
    return [
        message._replace(
            offset=Offset(base_offset + message.offset),
            is_log_append_time=wrapper.is_log_append_time,
            timestamp_ms=wrapper.timestamp_ms
            if wrapper.is_log_append_time
            else message.timestamp_ms,
        )
        for message in inner
    ]
