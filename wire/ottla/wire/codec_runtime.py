"""What the compiled functions of `codec` call: varints, ids, and the errors they raise.

Everything here is on the hot path of somebody; nothing here knows a message.
"""

from collections.abc import Callable
from uuid import UUID

from ottla.model.errors import ProtocolError
from ottla.wire.codec_types import ZERO_UUID

UVARINT_MAX = (1 << 32) - 1
"""Kafka's unsigned varints are 32 bits in at most five bytes."""

UUIDS_KEPT_MAX = 4096
"""Ids remembered by the intern table.  Smaller and topic ids are built again at every request;
larger and a client that invents ids holds memory (about 200 bytes each)."""

ONE_BYTE = tuple(bytes([value]) for value in range(128))
"""The unsigned varints below 128."""

_uuids: dict[bytes, UUID] = {bytes(16): ZERO_UUID}
find_uuid: Callable[[bytes], UUID | None] = _uuids.get


def keep_uuid(data: bytes) -> UUID:
    """Build the id of these 16 bytes and remember it; the table starts again when it is full."""
    if len(_uuids) >= UUIDS_KEPT_MAX:
        _uuids.clear()
        _uuids[bytes(16)] = ZERO_UUID
    value = _uuids[data] = UUID(bytes=data)
    return value


def more_uvarint(data: memoryview, at: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose `first` byte had its high bit set; `at` is behind it."""
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
    """Read an unsigned varint; IndexError when the data ends inside it."""
    first = data[at]
    return (first, at + 1) if first < 0x80 else more_uvarint(data, at + 1, first)


def write_uvarint(value: int) -> bytes:
    """Write an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def skip_tags(data: memoryview, at: int, count: int, end: int) -> int:
    """Step over tagged fields that nobody here knows (KIP-482), and say where they end."""
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
    """Say that a length or a count exceeds what is left of the message."""
    return ProtocolError(f"{where} is longer than what is left")


def is_null(where: str) -> ProtocolError:
    """Say that a field is null which may not be."""
    return ProtocolError(f"{where} is null")


def wrong_size(where: str) -> ProtocolError:
    """Say that a tagged field does not end where its size says."""
    return ProtocolError(f"{where} is not as long as its tag says")


def not_in_version(where: str, version: int) -> ProtocolError:
    """Say that a field is set which this version cannot carry, and which may not be dropped."""
    return ProtocolError(f"{where} is set, but version {version} has no such field")
