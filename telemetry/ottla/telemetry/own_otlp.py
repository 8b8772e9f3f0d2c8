"""A registry as OTLP: what a node tells of itself, in messages of a size that collectors take.

Pure.  Straight into OTLP's messages, at some 7 µs a point: the SDK's collection and encoding of the
same points takes 22 µs, and holds the loop for all of them at once; and it knows no summaries, as
the quantiles of Kafka's request times are (`bench/own_metrics_beside_sdk` measures it again).
Shapes: `metrics.proto` of opentelemetry-proto, version 1.
Everything is cumulative since the process began.
"""

from collections.abc import Iterable, Iterator, Mapping

from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    SummaryDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ottla.model.unicode_text import encodable
from ottla.telemetry.instruments import Buckets, Family, Labels, MetricKind, Summary, Value

SCOPE = InstrumentationScope(name="ottla")

POINTS_PER_SLICE = 256
"""Made before a pause is offered: about a millisecond."""

POINTS_PER_MESSAGE = 5_000
"""Some 300 KB; collectors take 4 MiB unless they are told otherwise."""


def resource_of(attributes: Mapping[str, str]) -> Resource:
    """Return who tells."""
    return Resource(attributes=[text_attribute(*pair) for pair in sorted(attributes.items())])


def messages_of(
    families: Iterable[Family | None], resource: Resource, *, start_ns: int, now_ns: int
) -> Iterator[bytes | None]:
    """Yield MetricsData messages; None where a pause is welcome.

    The numbers count since `start_ns` and hold at `now_ns`, both nanoseconds since 1970.
    """
    writer = _Writer(resource, start_ns=start_ns, now_ns=now_ns)
    for family in families:
        if family is None:
            yield None
            continue
        writer.begin(family)
        for sample in family.samples:
            if sample is None:
                yield None
                continue
            writer.add(*sample)
            if writer.point_count == POINTS_PER_MESSAGE:
                yield writer.take()
                writer.begin(family)
            elif not writer.point_count % POINTS_PER_SLICE:
                yield None
    if writer.point_count:
        yield writer.take()


class _Writer:
    """One message under construction."""

    def __init__(self, resource: Resource, *, start_ns: int, now_ns: int) -> None:
        self._resource = resource
        self._start_ns = start_ns
        self._now_ns = now_ns
        self._begin_message()

    def _begin_message(self) -> None:
        self._data = MetricsData()
        part = self._data.resource_metrics.add(resource=self._resource)
        self._metrics = part.scope_metrics.add(scope=SCOPE).metrics
        self._metric: Metric | None = None
        self.point_count = 0

    def take(self) -> bytes:
        """Return the message, and begin another one."""
        data = self._data.SerializeToString()
        self._begin_message()
        return data

    def begin(self, family: Family) -> None:
        """Have what is added belong to a family; one without points is not written."""
        self._family = family
        self._metric = None

    def add(self, labels: Labels, value: Value) -> None:
        """Write one sample."""
        if self._metric is None:
            self._metric = self._metrics.add(name=self._family.name, description=self._family.help)
        metric = self._metric
        attributes = [
            text_attribute(name, text)
            for name, text in zip(self._family.label_names, labels, strict=False)
        ]
        self.point_count += 1
        if isinstance(value, Summary):
            self._add_summary(metric, attributes, value)
        elif isinstance(value, Buckets):
            self._add_histogram(metric, attributes, value)
        elif self._family.kind is MetricKind.COUNTER:
            metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            metric.sum.is_monotonic = True
            metric.sum.data_points.append(self._number(attributes, value))
        else:
            metric.gauge.data_points.append(self._number(attributes, value))

    def _number(self, attributes: list[KeyValue], value: float) -> NumberDataPoint:
        point = NumberDataPoint(
            attributes=attributes,
            start_time_unix_nano=self._start_ns,
            time_unix_nano=self._now_ns,
        )
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
        return point

    def _add_summary(self, metric: Metric, attributes: list[KeyValue], value: Summary) -> None:
        metric.summary.data_points.append(
            SummaryDataPoint(
                attributes=attributes,
                start_time_unix_nano=self._start_ns,
                time_unix_nano=self._now_ns,
                count=value.value_count,
                sum=value.value_sum,
                quantile_values=[
                    SummaryDataPoint.ValueAtQuantile(quantile=q, value=at)
                    for q, at in value.quantiles
                ],
            )
        )

    def _add_histogram(self, metric: Metric, attributes: list[KeyValue], value: Buckets) -> None:
        metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.histogram.data_points.append(
            HistogramDataPoint(
                attributes=attributes,
                start_time_unix_nano=self._start_ns,
                time_unix_nano=self._now_ns,
                count=sum(value.counts),
                sum=value.value_sum,
                explicit_bounds=value.bounds,
                bucket_counts=value.counts,
            )
        )


def text_attribute(name: str, text: str) -> KeyValue:
    """Return an attribute whose value is a text; what UTF-8 cannot encode is replaced."""
    return KeyValue(key=name, value=AnyValue(string_value=encodable(text)))
