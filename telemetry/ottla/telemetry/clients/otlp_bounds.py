"""Limits on the content of a client's OTLP message, in addition to the limit of its size. Pure. The
number of parts is checked before the message is decoded.

A part is a nested message, a text or a list. An empty part takes two bytes in the message and about
a hundred bytes in memory. A name is sent once but stored with every point. A limit on the size of
the message therefore does not limit memory. Short messages cannot exceed these limits and are not
checked. A message that exceeds a limit is refused with TELEMETRY_TOO_LARGE.
"""

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.limits import KIB, MIB

PARTS_MAX = 256 * KIB
"""Maximum number of parts (messages, texts and lists) in one push: enough for about 15,000 data
points with three attributes each."""
UNCOUNTED_BYTES_MAX = 2 * PARTS_MAX
"""Maximum size in bytes of a push whose parts are not counted. A part has at least two bytes, so a
push of this size has at most `PARTS_MAX` parts."""
POINTS_MAX = 20_000
"""Maximum number of data points in one push. A Java client with every metric on a thousand
partitions has fewer points."""
SPREAD_BYTES_MAX = 16 * MIB
"""Maximum total size in bytes of the names, units and resources of one push. Each name, unit or
resource is counted once for every data point to which it applies."""
UNSPREAD_BYTES_MAX = 8 * KIB
"""Maximum size in bytes of a push for which the total size of its names is not checked against
`SPREAD_BYTES_MAX`. Even if half of the push is a name and half consists of empty points, the total
is within the limit."""
RESOURCES_MAX = 256
"""Maximum number of different OTLP resources in one push. A client normally has one resource. The
labels of the client are added to each resource."""
NESTING_MAX = 64
"""Maximum depth of nested messages, texts and lists in a push. Protobuf itself permits 100."""

Fields = dict[int, "Fields"]
"""Tree of the fields of a Protobuf message that contain messages, by field number."""

assert (UNSPREAD_BYTES_MAX // 2) * (UNSPREAD_BYTES_MAX // 4) <= SPREAD_BYTES_MAX
assert UNSPREAD_BYTES_MAX // 2 <= POINTS_MAX

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf that a message may contain. OTLP has never used groups (3 and 4)."""


def fields_of(message: Descriptor) -> Fields:
    """Return the tree of the fields of a Protobuf message that are messages themselves. For
    recursive messages, the tree contains a cycle."""
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
    """Check the number of parts (messages, texts and lists) in a push. Raises RefusedError if a
    push has too many parts, or CorruptDataError if the message is malformed."""
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
    """Check the number of data points in a push, and the size of their names. Raises RefusedError
    if there are too many data points or the names are too large.

    `size_bytes` is the size of the encoded message.
    """
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
    """Return the RefusedError for a push that exceeds a limit; `what` names the content that is too
    large."""
    return RefusedError(ErrorCode.TELEMETRY_TOO_LARGE, f"The push has {what}.")


def _point_count(metric: Metric) -> int:
    kind = metric.WhichOneof("data")
    return 0 if kind is None else len(getattr(metric, kind).data_points)


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Decode the Protobuf varint at the position `at` of the data. Returns its value and the
    position of its end."""
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
