"""Runtime of the functions that `codec` compiles: varints, ids, and the errors that these functions
raise.

All functions here are on hot paths. None of them depends on a particular message.
"""

from collections.abc import Callable
from uuid import UUID

from ottla.model.errors import ProtocolError
from ottla.wire.codec_types import ZERO_UUID

UVARINT_MAX = (1 << 32) - 1
"""Maximum value of Kafka's unsigned varints, which have 32 bits in at most five bytes."""

UUIDS_KEPT_MAX = 4096
"""Maximum number of UUIDs in the table of decoded ids, which are reused. With a smaller table,
topic ids are created again for every request. With a larger table, a client that sends invented ids
uses more memory (about 200 bytes per id)."""

ONE_BYTE = tuple(bytes([value]) for value in range(128))
"""Encodings of the unsigned varints below 128, by value."""

_uuids: dict[bytes, UUID] = {bytes(16): ZERO_UUID}
find_uuid: Callable[[bytes], UUID | None] = _uuids.get


def keep_uuid(data: bytes) -> UUID:
    """Create the UUID of these 16 bytes, add it to the table of decoded ids, and return it. A full
    table is cleared first."""
    if len(_uuids) >= UUIDS_KEPT_MAX:
        _uuids.clear()
        _uuids[bytes(16)] = ZERO_UUID
    value = _uuids[data] = UUID(bytes=data)
    return value


def more_uvarint(data: memoryview, at: int, first: int) -> tuple[int, int]:
    """Decode an unsigned varint whose `first` byte has its high bit set. `at` is the position after
    the first byte. Returns the value and the position after its last byte."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                break
            return value, at
    raise ProtocolError("a varint has more than 32 bits")


def read_uvarint(data: memoryview, at: int) -> tuple[int, int]:
    """Decode the unsigned varint at position `at`. Returns its value and the position of its end.
    Raises IndexError if the data ends inside it."""
    first = data[at]
    return (first, at + 1) if first < 0x80 else more_uvarint(data, at + 1, first)


def write_uvarint(value: int) -> bytes:
    """Return a number encoded as an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    # Sizes of records have two or three bytes, and are written for each batch.
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def skip_tags(data: memoryview, at: int, count: int, end: int) -> int:
    """Skip `count` unknown tagged fields (KIP-482) of a message. Returns the position of their
    end."""
    if count > 0x7F:
        count, at = more_uvarint(data, at, count)
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
        if at > end:
            raise ProtocolError("a tagged field is longer than what is left")
    return at


def too_long(where: str) -> ProtocolError:
    """Return the ProtocolError for a length or a count, in the field `where`, that exceeds the rest
    of the message."""
    return ProtocolError(f"{where} is longer than what is left")


def is_null(where: str) -> ProtocolError:
    """Return the ProtocolError for a null in the field `where`, which is not nullable."""
    return ProtocolError(f"{where} is null")


def wrong_size(where: str) -> ProtocolError:
    """Return a ProtocolError for a tagged field whose content does not match its size. `where`
    names the field."""
    return ProtocolError(f"{where} is not as long as its tag says")


def not_in_version(where: str, version: int) -> ProtocolError:
    """Return a ProtocolError for a field that is set in a version without the field. `where` names
    the field, which is not ignorable."""
    return ProtocolError(f"{where} is set, but version {version} has no such field")
