"""OTLP metrics of clients: parsed within limits, labelled with the client, and converted to points.

Pure. Gauges, sums and histograms become points. Exponential histograms and summaries, which no
Kafka client sends, are forwarded without conversion. The format is `metrics.proto` of
opentelemetry-proto, version 1.
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
from ottla.telemetry.clients.client_labels import LABEL_NAMES, ClientLabels
from ottla.telemetry.clients.otlp_bounds import (
    RESOURCES_MAX,
    check_parts,
    check_spread,
    fields_of,
    too_large,
)

Attributes = tuple[tuple[str, str], ...]
"""Attributes of a metric, as (name, value) texts, in the order in which the client sent them."""


class PointKind(IntEnum):
    """Meaning of a data point's value, numbered as in `ClientMetricsRecord`."""

    GAUGE = 0
    SUM = 1
    HISTOGRAM = 2


@frozen
class HistogramValue:
    """Value of a histogram's data point: `counts[i]` is the number of values that are at most
    `bounds[i]` and above the previous bound. The last count has all values above the last bound.

    Both lists are empty if only the count and the sum are known.
    """

    count: int
    sum: float
    bounds: tuple[float, ...]
    counts: tuple[int, ...]


class Point(NamedTuple):
    """One data point: the value of one series at one time, decoded from a client's push."""

    name: str
    unit: str
    kind: PointKind
    is_delta: bool
    """True if the data point's value is the increase since `start_ns`. False if it is the total
    since the client started."""
    is_monotonic: bool
    attributes: Attributes
    """Attributes of the data point: first the attributes of its resource (without the labels that
    the broker adds), then its own attributes."""
    start_ns: int
    """Start of the interval that the data point's value covers, in ns since 1970, or 0 if the
    client did not send the start."""
    end_ns: int
    value: int | float | HistogramValue


_FIELDS = fields_of(MetricsData.DESCRIPTOR)


def decode(data: bytes) -> MetricsData:
    """Decode the OTLP message of a client's push. Raises CorruptDataError if the push is not OTLP.

    Raises RefusedError(TELEMETRY_TOO_LARGE) if its content is much larger than its encoding.
    """
    check_parts(data, _FIELDS)
    metrics = reread(data)
    check_spread(metrics, len(data))
    return metrics


def reread(data: bytes) -> MetricsData:
    """Decode the OTLP message of a push that was already checked and labelled. The limits are not
    checked, because the added labels may exceed them."""
    try:
        return MetricsData.FromString(data)
    except DecodeError as error:
        raise CorruptDataError(f"a push is no OTLP: {error}") from None


def label(data: MetricsData, labels: ClientLabels) -> bytes:
    """Add the labels of the client to every resource of its push, and return the encoded message.

    Changes `data`. Equal resources are merged into one (the Java client sends one per metric). The
    concatenated bytes of several messages are a message with all their resources. They are also a
    valid ExportMetricsServiceRequest, so batches need no encoding. Raises RefusedError if there are
    too many different resources.
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
    """Yield all data points of a push that have a value, in the order in which they were sent."""
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
    """Yield the data points of a gauge or a sum. `shape` contains their kind, is_delta and
    is_monotonic."""
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
            bounds, counts = (), ()  # no buckets were sent, or they are useless
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
    # Clients may send integers or doubles; each keeps its type.  A field that is not set reads as
    # zero, so only for a zero it has to be checked which field is set.
    return point.as_double or point.as_int or (0 if point.HasField("as_int") else 0.0)


def _attributes(attributes: Iterable[KeyValue]) -> Attributes:
    return tuple(
        [(pair.key, pair.value.string_value or _text_of(pair.value)) for pair in attributes]
    )


def _text_of(value: AnyValue) -> str:
    """Return the value of an OTLP attribute as text. Lists and maps, which no client sends, become
    empty."""
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
