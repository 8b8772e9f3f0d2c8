"""How much an OTLP message is, beyond its bytes: counted before anything is built of it.

An empty part costs two bytes to send and some fifty times that in memory; a name is sent once and
stands with every point.  So a bound on bytes alone bounds no memory.  Short messages cannot come to
too much and are not looked at.  What does is TELEMETRY_TOO_LARGE, as if it had been sent so.
"""

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.limits import KIB, MIB

PARTS_MAX = 256 * KIB
"""Messages, texts and lists of one push in all: some 15,000 points with three attributes each."""
UNCOUNTED_BYTES_MAX = 2 * PARTS_MAX
"""A part is at least two bytes, so what is no longer than this cannot have too many."""
POINTS_MAX = 20_000
"""Points of one push.  A Java client with every metric on a thousand partitions has fewer."""
SPREAD_BYTES_MAX = 16 * MIB
"""Names, units and resources of one push, counted as often as they stand with a point."""
UNSPREAD_BYTES_MAX = 8 * KIB
"""Half of this as a name and half as empty points spread to less than is allowed."""
RESOURCES_MAX = 256
"""Different resources of one push; clients have one, and each gets our labels."""
NESTING_MAX = 64
"""Depth of parts within parts; protobuf itself stops at 100."""

Fields = dict[int, "Fields"]
"""The fields of a message that are messages themselves, by number."""

assert (UNSPREAD_BYTES_MAX // 2) * (UNSPREAD_BYTES_MAX // 4) <= SPREAD_BYTES_MAX
assert UNSPREAD_BYTES_MAX // 2 <= POINTS_MAX

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
    """Refuse a message with too many parts, or one that is none: CorruptDataError."""
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
        key, at = varint(data, at, end)
        kind = key & 7
        if kind == VARINT:
            _, at = varint(data, at, end)
        elif kind == FIXED64:
            at += 8
        elif kind == FIXED32:
            at += 4
        elif kind == DELIMITED:
            length, at = varint(data, at, end)
            parts += 1
            if parts > PARTS_MAX:
                raise too_large(f"more than {PARTS_MAX} parts")
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


def check_spread(data: MetricsData, size_bytes: int) -> None:
    """Refuse a message of `size_bytes` whose points are too many or come to too much."""
    if size_bytes <= UNSPREAD_BYTES_MAX:
        return
    points = spread_bytes = 0
    for part in data.resource_metrics:
        resource_bytes = part.resource.ByteSize()
        for scope in part.scope_metrics:
            for metric in scope.metrics:
                count = _point_count(metric)
                points += count
                spread_bytes += count * (resource_bytes + len(metric.name) + len(metric.unit))
    if points > POINTS_MAX:
        raise too_large(f"more than {POINTS_MAX} points")
    if spread_bytes > SPREAD_BYTES_MAX:
        raise too_large(f"points whose names come to more than {SPREAD_BYTES_MAX} bytes")


def too_large(what: str) -> RefusedError:
    """Return the refusal of a push that has too much of something."""
    return RefusedError(ErrorCode.TELEMETRY_TOO_LARGE, f"The push has {what}.")


def _point_count(metric: Metric) -> int:
    kind = metric.WhichOneof("data")
    return 0 if kind is None else len(getattr(metric, kind).data_points)


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
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
