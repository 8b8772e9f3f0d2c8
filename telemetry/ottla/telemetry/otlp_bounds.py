"""How many parts an OTLP message has, counted before anything is built of them.

An empty part costs two bytes to send and some fifty times that in memory, so a bound on bytes alone
bounds no memory.  Short messages cannot have too many parts and are not looked at; long ones are
walked once, without being decoded.
"""

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ottla.model.errors import CorruptDataError
from ottla.model.limits import KIB

PARTS_MAX = 256 * KIB
"""Messages, texts and lists of one push in all: some 15,000 points with three attributes each."""
UNCOUNTED_BYTES_MAX = 2 * PARTS_MAX
"""A part is at least two bytes, so what is no longer than this cannot have too many."""
NESTING_MAX = 64
"""Depth of parts within parts; protobuf itself stops at 100."""

Fields = dict[int, "Fields"]
"""The fields of a message that are messages themselves, by number."""

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
"""Protobuf's wire types; groups (3 and 4) were never in OTLP."""


def fields_of(message: Descriptor) -> Fields:
    """Return the tree of a message's parts; a message that holds itself closes a loop in it."""
    known: dict[str, Fields] = {}

    def visit(part: Descriptor) -> Fields:
        if part.full_name in known:
            return known[part.full_name]
        fields = known[part.full_name] = {}
        for field in part.fields:
            if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None:
                fields[field.number] = visit(field.message_type)
        return fields

    return visit(message)


def check_parts(data: bytes, fields: Fields) -> None:
    """Refuse a message with too many parts or too deep ones: CorruptDataError."""
    if len(data) <= UNCOUNTED_BYTES_MAX:
        return
    parts = 0
    open_parts: list[tuple[int, Fields]] = []
    at, end = 0, len(data)
    while True:
        while at == end:
            if not open_parts:
                return
            end, fields = open_parts.pop()
        key, at = _varint(data, at, end)
        kind = key & 7
        if kind == VARINT:
            _, at = _varint(data, at, end)
        elif kind == FIXED64:
            at += 8
        elif kind == FIXED32:
            at += 4
        elif kind == DELIMITED:
            length, at = _varint(data, at, end)
            parts += 1
            if parts > PARTS_MAX:
                raise CorruptDataError(f"a push has more than {PARTS_MAX} parts")
            within = fields.get(key >> 3)
            if within is None or at + length > end:
                at += length
            else:
                open_parts.append((end, fields))
                end, fields = at + length, within
                if len(open_parts) > NESTING_MAX:
                    raise CorruptDataError(f"a push nests deeper than {NESTING_MAX}")
        else:
            raise CorruptDataError(f"a push has a field of wire type {kind}")
        if at > end:
            raise CorruptDataError("a push has a field that reaches beyond its message")


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at `at` and where it ends."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            break
    raise CorruptDataError("a push has a number that does not end")
