"""Encoding of a client's pushed metrics as records of the topic `__client_metrics`, and decoding of
these records.

Pure. The format is `client_metrics.proto`, which pipelines can read without Ottla's code. A push
that is too large for one record is split into several records with the same client and time. Each
record contains some of the push's points (values of series).
"""

from uuid import UUID

from google.protobuf.message import DecodeError

from ottla.model.errors import CorruptDataError
from ottla.model.limits import KIB
from ottla.model.unicode_text import encodable
from ottla.proto.client_metrics_pb2 import (
    GAUGE,
    HISTOGRAM,
    SUM,
    Client,
    ClientMetricsRecord,
)
from ottla.proto.client_metrics_pb2 import Point as PointMessage
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.otlp import HistogramValue, Point, PointKind, points_of, reread

RECORD_BYTES_MAX = 512 * KIB
"""Maximum size, in bytes, of the data points in one record of `__client_metrics`: half of the
default maximum batch size of a topic."""
POINT_HEAD_BYTES = 4
"""Maximum size, in bytes, of the encoded tag and length before a data point in its record."""

_KINDS = {PointKind.GAUGE: GAUGE, PointKind.SUM: SUM, PointKind.HISTOGRAM: HISTOGRAM}


def encode_records(push: LabelledPush) -> tuple[list[bytes], int]:
    """Encode a client's push as records of `__client_metrics`. Returns the values of the records,
    and the number of data points that are too large for any record.

    `push` must come from a client, because the metrics of a node itself have no records.
    """
    values: list[bytes] = []
    left_out = 0
    record = _without_points(push)
    record_bytes = record.ByteSize()
    for point in points_of(reread(push.otlp)):
        _put_point(record.points.add(), point)
        point_bytes = record.points[-1].ByteSize() + POINT_HEAD_BYTES
        if point_bytes > RECORD_BYTES_MAX:
            del record.points[-1]
            left_out += 1
            continue
        record_bytes += point_bytes
        if record_bytes > RECORD_BYTES_MAX and len(record.points) > 1:
            del record.points[-1]
            values.append(record.SerializeToString())
            record = _without_points(push)
            _put_point(record.points.add(), point)
            record_bytes = record.ByteSize()
    values.append(record.SerializeToString())
    return values, left_out


def _without_points(push: LabelledPush) -> ClientMetricsRecord:
    labels = push.labels
    assert labels is not None
    record = ClientMetricsRecord(received_ms=push.received_ms)
    client = record.client
    client.client_instance_id = labels.client_instance_id.bytes
    client.client_id = encodable(labels.client_id)
    client.principal = encodable(labels.principal)
    client.software_name = encodable(labels.software_name)
    client.software_version = encodable(labels.software_version)
    client.source_address = encodable(labels.source_address)
    client.broker_id = labels.broker_id
    return record


def decode_record(value: bytes) -> tuple[ClientLabels, int, list[Point]]:
    """Decode the value of a record of `__client_metrics`. Returns the client, the time of the push
    in ms since 1970, and the data points.

    Raises CorruptDataError if the record is malformed.
    """
    try:
        record = ClientMetricsRecord.FromString(value)
    except DecodeError as error:
        raise CorruptDataError(f"a record of client metrics: {error}") from None
    points = [_point_of(message) for message in record.points]
    return _labels_of(record.client), record.received_ms, points


def _put_point(message: PointMessage, point: Point) -> None:
    message.name = point.name
    message.unit = point.unit
    message.kind = _KINDS[point.kind]
    message.is_delta = point.is_delta
    message.is_monotonic = point.is_monotonic
    message.start_ns = point.start_ns
    message.end_ns = point.end_ns
    for name, text in point.attributes:
        message.attributes.add(name=name, value=text)
    value = point.value
    if isinstance(value, HistogramValue):
        histogram = message.histogram_value
        histogram.count = value.count
        histogram.sum = value.sum
        histogram.bounds.extend(value.bounds)
        histogram.counts.extend(value.counts)
    elif isinstance(value, int):
        message.int_value = value
    else:
        message.double_value = value


def _point_of(message: PointMessage) -> Point:
    kind = message.WhichOneof("value")
    value: int | float | HistogramValue
    if kind == "histogram_value":
        histogram = message.histogram_value
        bounds, counts = tuple(histogram.bounds), tuple(histogram.counts)
        value = HistogramValue(histogram.count, histogram.sum, bounds, counts)
    else:
        value = message.int_value if kind == "int_value" else message.double_value
    try:
        point_kind = PointKind(message.kind)
    except ValueError:
        raise CorruptDataError(f"a point of kind {message.kind}") from None
    return Point(
        message.name,
        message.unit,
        point_kind,
        message.is_delta,
        message.is_monotonic,
        tuple((attribute.name, attribute.value) for attribute in message.attributes),
        message.start_ns,
        message.end_ns,
        value,
    )


def _labels_of(client: Client) -> ClientLabels:
    if len(client.client_instance_id) != 16:
        raise CorruptDataError("a client instance id is not 16 bytes")
    return ClientLabels(
        UUID(bytes=client.client_instance_id),
        client.client_id,
        client.principal,
        client.software_name,
        client.software_version,
        client.source_address,
        client.broker_id,
    )
