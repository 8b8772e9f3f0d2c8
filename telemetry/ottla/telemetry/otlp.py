"""What clients push: OTLP metrics, read within bounds, labelled with who sent them, point by point.

Pure.  Gauges, sums and histograms become points; exponential histograms and summaries, which no
Kafka client sends, only pass through.  Shapes: opentelemetry-proto's `metrics.proto`, version 1.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
)

from ottla.model.errors import CorruptDataError
from ottla.model.values import frozen
from ottla.telemetry.client_labels import LABEL_NAMES, ClientLabels
from ottla.telemetry.otlp_bounds import (
    RESOURCES_MAX,
    check_parts,
    check_spread,
    fields_of,
    too_large,
)

Attributes = tuple[tuple[str, str], ...]
"""Names and values as texts, in the order they were sent."""


class PointKind(IntEnum):
    """What a point's value means; the numbers are those of `ClientMetricsRecord`."""

    GAUGE = 0
    SUM = 1
    HISTOGRAM = 2


@frozen
class HistogramValue:
    """How often a value fell where: `counts[i]` of those at most `bounds[i]`, and one count more.

    Both are empty when only count and sum are known.
    """

    count: int
    sum: float
    bounds: tuple[float, ...]
    counts: tuple[int, ...]


class Point(NamedTuple):
    """One value of one series, at one time."""

    name: str
    unit: str
    kind: PointKind
    is_delta: bool
    """Whether the value is what was added since `start_ns`, not since the client began."""
    is_monotonic: bool
    attributes: Attributes
    """Those of its resource (without our labels), then its own."""
    start_ns: int
    """Since when it counts, in nanoseconds since the Unix epoch; 0 when it was not said."""
    end_ns: int
    value: int | float | HistogramValue


_FIELDS = fields_of(MetricsData.DESCRIPTOR)


def decode(data: bytes) -> MetricsData:
    """Read a push; CorruptDataError when it is no OTLP.

    RefusedError, TELEMETRY_TOO_LARGE, when it comes to more than its bytes say.
    """
    check_parts(data, _FIELDS)
    metrics = reread(data)
    check_spread(metrics, len(data))
    return metrics


def reread(data: bytes) -> MetricsData:
    """Read again what was read and labelled before, whose bounds our labels may exceed by now."""
    try:
        return MetricsData.FromString(data)
    except DecodeError as error:
        raise CorruptDataError(f"a push is no OTLP: {error}") from None


def label(data: MetricsData, labels: ClientLabels) -> bytes:
    """Put who pushed among the attributes of every resource; return the message as bytes.

    Changes `data`.  Resources that are equal become one (the Java client sends one a metric).  The
    bytes of several messages in a row are one message with all of their resources, and are also
    those of an ExportMetricsServiceRequest: batches are made by joining.  RefusedError when too
    many resources differ.
    """
    ours = [_text_attribute(name, value) for name, value in labels.pairs()]
    distinct: dict[tuple[bytes, str], ResourceMetrics] = {}
    for part in data.resource_metrics:
        identity = (part.resource.SerializeToString(deterministic=True), part.schema_url)
        first = distinct.setdefault(identity, part)
        if first is not part:
            first.scope_metrics.extend(part.scope_metrics)
        elif len(distinct) > RESOURCES_MAX:
            raise too_large(f"more than {RESOURCES_MAX} different resources")
    for part in distinct.values():
        attributes = part.resource.attributes
        theirs = [kept for kept in attributes if kept.key not in LABEL_NAMES]
        if len(theirs) < len(attributes):
            copies = [KeyValue.FromString(kept.SerializeToString()) for kept in theirs]
            del attributes[:]
            theirs = copies
            attributes.extend(theirs)
        attributes.extend(ours)
    if len(distinct) == len(data.resource_metrics):
        return data.SerializeToString()
    return MetricsData(resource_metrics=distinct.values()).SerializeToString()


def points_of(data: MetricsData) -> Iterator[Point]:
    """Yield every value that was recorded, in the order they were sent."""
    for part in data.resource_metrics:
        of_resource = tuple(
            pair for pair in _attributes(part.resource.attributes) if pair[0] not in LABEL_NAMES
        )
        for scope in part.scope_metrics:
            for metric in scope.metrics:
                yield from _points_of_metric(metric, of_resource)


def _points_of_metric(metric: Metric, of_resource: Attributes) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    if kind == "gauge":
        shape = PointKind.GAUGE, False, False
        yield from _points_of_numbers(metric, metric.gauge.data_points, shape, of_resource)
    elif kind == "sum":
        is_delta = metric.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
        shape = PointKind.SUM, is_delta, metric.sum.is_monotonic
        yield from _points_of_numbers(metric, metric.sum.data_points, shape, of_resource)
    elif kind == "histogram":
        yield from _points_of_histogram(metric, of_resource)


def _points_of_numbers(
    metric: Metric,
    numbers: Iterable[NumberDataPoint],
    shape: tuple[PointKind, bool, bool],
    of_resource: Attributes,
) -> Iterator[Point]:
    """Yield the points of a gauge or a sum; `shape` is kind, is_delta, is_monotonic."""
    for number in numbers:
        if not number.flags & DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
            yield Point(
                metric.name,
                metric.unit,
                *shape,
                of_resource + _attributes(number.attributes),
                number.start_time_unix_nano,
                number.time_unix_nano,
                _number(number),
            )


def _points_of_histogram(metric: Metric, of_resource: Attributes) -> Iterator[Point]:
    is_delta = metric.histogram.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
    for point in metric.histogram.data_points:
        if point.flags & DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
            continue
        bounds, counts = tuple(point.explicit_bounds), tuple(point.bucket_counts)
        if len(counts) != len(bounds) + 1:
            bounds, counts = (), ()  # none were sent, or they tell nothing
        yield Point(
            metric.name,
            metric.unit,
            PointKind.HISTOGRAM,
            is_delta,
            True,
            of_resource + _attributes(point.attributes),
            point.start_time_unix_nano,
            point.time_unix_nano,
            HistogramValue(point.count, point.sum, bounds, counts),
        )


def _number(point: NumberDataPoint) -> int | float:
    # Clients send integers or doubles, as they like; each keeps its type.  What is not set reads as
    # zero, and only a zero needs to be asked what it is.
    return point.as_double or point.as_int or (0 if point.HasField("as_int") else 0.0)


def _attributes(attributes: Iterable[KeyValue]) -> Attributes:
    return tuple(
        [(pair.key, pair.value.string_value or _text_of(pair.value)) for pair in attributes]
    )


def _text_of(value: AnyValue) -> str:
    """Return a value that is no text, as one; lists and maps, which no client sends, are empty."""
    kind = value.WhichOneof("value")
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind == "int_value":
        return str(value.int_value)
    if kind == "double_value":
        return repr(value.double_value)
    return ""


def _text_attribute(name: str, value: str) -> KeyValue:
    attribute = KeyValue(key=name)
    attribute.value.string_value = value
    return attribute
