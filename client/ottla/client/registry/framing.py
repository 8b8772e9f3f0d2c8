"""Schema ids in records: the wire format of Confluent's serializers. Pure.

| form | record |
|---|---|
| prefix | byte 0, the id in 4 bytes, for Protobuf the message indexes, then the payload |
| header | a header with byte 1, the GUID in 16 bytes, for Protobuf the message indexes; no prefix |

Readers look at the header first, and accept either byte in both places, as Confluent's readers do.

Message indexes are the path to a message in its `.proto` file: [1, 0] is the first message within
the second. They are encoded as their count, followed by each index, all as zigzag varints. The path
[0], by far the most common, is the single byte 0.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Literal, NamedTuple
from uuid import UUID

from ottla.client.registry.registry_errors import FramingError
from ottla.client.registry.schema_values import SchemaId, SchemaKey

RecordPart = Literal["key", "value"]
"""Part of a record that is serialized with a schema: key or value."""

ID_MAGIC = 0
GUID_MAGIC = 1
GUID_BYTES = 16
HEADER_NAMES: dict[RecordPart, str] = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""Names of the record headers that contain a schema's GUID."""

INDEX_COUNT_MAX = 100
"""Maximum nesting of a Protobuf message, as in Protobuf's own parsers."""
VARINT_BYTES_MAX = 5
"""Maximum size, in bytes, of one encoded message index. An index is an int32."""
SINGLE_INDEX = (0,)

_ID_PREFIX = Struct(">BI")


class FramedPayload(NamedTuple):
    """Header of a serialized key or value: the id or GUID of its schema, and the position of the
    payload."""

    key: SchemaKey
    """Id or GUID of the schema with which the payload was written."""
    indexes: tuple[int, ...]
    """Message indexes of a Protobuf message. Empty for other formats."""
    start: int
    """Offset in bytes at which the payload starts."""


def encode_prefix(schema_id: SchemaId, indexes: Sequence[int] | None = None) -> bytes:
    """Return the bytes before a payload: magic byte, schema id and, if `indexes` is not None,
    message indexes."""
    prefix = _ID_PREFIX.pack(ID_MAGIC, schema_id)
    return prefix if indexes is None else prefix + encode_indexes(indexes)


def encode_guid_header(guid: UUID, indexes: Sequence[int] | None = None) -> bytes:
    """Return the value of the record header with a schema's GUID and, if `indexes` is not None,
    message indexes."""
    value = bytes((GUID_MAGIC,)) + guid.bytes
    return value if indexes is None else value + encode_indexes(indexes)


def decode_frame(
    part: RecordPart,
    data: bytes,
    headers: Sequence[tuple[str, bytes | None]],
    *,
    has_indexes: bool,
) -> FramedPayload:
    """Return the schema id or GUID of a serialized key or value, and the position of its payload.

    Raises FramingError if the record has no schema header and the data does not begin with a schema
    id.
    """
    if headers:
        name = HEADER_NAMES[part]
        for header_name, content in headers:
            if header_name == name and content is not None:
                found = decode_prefix(content, has_indexes=has_indexes, where=f"header {name}")
                if found.start != len(content):
                    raise FramingError(f"header {name} has {len(content) - found.start} more bytes")
                return found._replace(start=0)
    return decode_prefix(data, has_indexes=has_indexes, where=f"the {part}")


def decode_prefix(data: bytes, *, has_indexes: bool, where: str = "the data") -> FramedPayload:
    """Return the schema id or GUID at the start of `data`, and the message indexes after it.

    Raises FramingError if `data` does not begin with a schema id or GUID, or if the message indexes
    are malformed.
    """
    key: SchemaKey
    if len(data) >= _ID_PREFIX.size and data[0] == ID_MAGIC:
        key, start = SchemaId(_ID_PREFIX.unpack_from(data)[1]), _ID_PREFIX.size
    elif not data or data[0] not in (ID_MAGIC, GUID_MAGIC):
        shown = f"byte {data[0]:#04x}" if data else "nothing"
        raise FramingError(
            f"{where} begins with {shown}, not with a schema id: was it written without a schema "
            "registry?"
        )
    elif data[0] == GUID_MAGIC and len(data) > GUID_BYTES:
        key, start = UUID(bytes=bytes(data[1 : 1 + GUID_BYTES])), 1 + GUID_BYTES
    else:
        raise FramingError(f"{where} has {len(data)} bytes, too few for a schema id")
    if not has_indexes:
        return FramedPayload(key, (), start)
    indexes, start = decode_indexes(data, start, where=where)
    return FramedPayload(key, indexes, start)


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Encode the message indexes of a Protobuf message."""
    if tuple(indexes) == SINGLE_INDEX:
        return b"\x00"
    assert indexes, "a message has at least one index"
    return b"".join(map(_zigzag, (len(indexes), *indexes)))


def decode_indexes(data: bytes, start: int, *, where: str) -> tuple[tuple[int, ...], int]:
    """Decode the Protobuf message indexes that start at position `start` of `data`. Returns the
    indexes and the position after them.

    Raises FramingError if the message indexes are malformed.
    """
    count, place = _read_zigzag(data, start, where)
    if count == 0:
        return SINGLE_INDEX, place
    if not 0 < count <= INDEX_COUNT_MAX:
        raise FramingError(f"{where} has {count} message indexes, of {INDEX_COUNT_MAX} at most")
    indexes = []
    for _ in range(count):
        index, place = _read_zigzag(data, place, where)
        if index < 0:
            raise FramingError(f"{where} has the negative message index {index}")
        indexes.append(index)
    return tuple(indexes), place


def _zigzag(number: int) -> bytes:
    left = number << 1  # no index and no number of indexes is negative
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _read_zigzag(data: bytes, start: int, where: str) -> tuple[int, int]:
    number = shift = 0
    for place in range(start, min(len(data), start + VARINT_BYTES_MAX)):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place + 1
    if len(data) < start + VARINT_BYTES_MAX:
        raise FramingError(f"{where} ends within its message indexes")
    raise FramingError(f"{where} has a message index of more than {VARINT_BYTES_MAX} bytes")
