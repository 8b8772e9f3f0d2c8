"""Compaction of entries in the message formats v0 and v1, in the logs of old brokers. Pure.

An entry is either a single message, which is kept or dropped, or a wrapper with compressed
messages. The kept messages of a wrapper are compressed again with the same codec. The new wrapper
has the offset of the last kept message. Inner offsets do not change. In v1, inner offsets are
relative to a base offset: the wrapper's offset minus the inner offset of its last message.
"""

import zlib
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.record_work import KeepRule
from ottla.wire.batch import NO_TIMESTAMP
from ottla.wire.compression import Codec, compress, decompress
from ottla.wire.legacy import (
    ENTRY_HEADER_BYTES,
    LegacyMessage,
    messages,
    shallow_messages,
)

_ENTRY = Struct(">qi")
_MAGIC_ATTRIBUTES = Struct(">bb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
LOG_APPEND_TIME_FLAG = 0x08


class FilteredEntry(NamedTuple):
    """The part of an entry in message format v0 or v1 that compaction keeps."""

    entry: bytes | None
    """Bytes of the entry that compaction keeps, or None if the whole entry is dropped."""
    keyless_count: int


def filtered_entry(
    entry: bytes, offset_map: OffsetMap, rule: KeepRule, *, are_tombstones_kept: bool
) -> FilteredEntry:
    """Return the part of an entry in message format v0 or v1 that compaction keeps.

    Raises CorruptDataError if the data is corrupt.
    """
    found = list(messages(entry))
    is_kept = [_is_kept(message, offset_map, rule, are_tombstones_kept) for message in found]
    keyless_count = sum(
        message.key is None and not kept for message, kept in zip(found, is_kept, strict=True)
    )
    if all(is_kept):
        return FilteredEntry(entry, keyless_count)
    if not any(is_kept):
        return FilteredEntry(None, keyless_count)
    return FilteredEntry(_wrapped_again(entry, found, is_kept), keyless_count)


def _is_kept(
    message: LegacyMessage, offset_map: OffsetMap, rule: KeepRule, are_tombstones_kept: bool
) -> bool:
    if message.offset >= rule.clean_to:
        return True
    if message.key is None or message.offset < rule.log_start_offset:
        return False
    if message.value is None and not are_tombstones_kept:
        return False
    return message.offset >= offset_map.offset_of(message.key)


def _wrapped_again(entry: bytes, found: list[LegacyMessage], is_kept: list[bool]) -> bytes:
    """Return a v0 or v1 wrapper message with only the messages for which `is_kept` is True."""
    (wrapper,) = shallow_messages(entry)
    assert wrapper.codec is not Codec.NONE
    assert wrapper.value is not None
    inner = decompress(wrapper.codec, wrapper.value)
    kept = b"".join(part for part, stays in zip(_parts(inner), is_kept, strict=True) if stays)
    last = max(m.offset for m, stays in zip(found, is_kept, strict=True) if stays)
    value = compress(wrapper.codec, kept)
    message = bytearray()
    flags = LOG_APPEND_TIME_FLAG if wrapper.is_log_append_time else 0
    message += _MAGIC_ATTRIBUTES.pack(wrapper.magic, int(wrapper.codec) | flags)
    if wrapper.magic == 1:
        times = (m.timestamp_ms for m, stays in zip(found, is_kept, strict=True) if stays)
        timestamp = wrapper.timestamp_ms if wrapper.is_log_append_time else _largest(times)
        message += _TIMESTAMP.pack(timestamp)
    message += _field(wrapper.key) + _field(value)
    crc = _CRC.pack(zlib.crc32(message))
    return _ENTRY.pack(last, len(crc) + len(message)) + crc + message


def _parts(inner: bytes) -> Iterable[bytes]:
    """Yield each message of a message set in format v0 or v1. The message set must have been
    validated before."""
    at = 0
    while at < len(inner):
        size = _ENTRY.unpack_from(inner, at)[1]
        yield inner[at : at + ENTRY_HEADER_BYTES + size]
        at += ENTRY_HEADER_BYTES + size


def _field(content: bytes | None) -> bytes:
    if content is None:
        return _LENGTH.pack(-1)
    return _LENGTH.pack(len(content)) + content


def _largest(times: Iterable[int]) -> int:
    return max(times, default=NO_TIMESTAMP)
