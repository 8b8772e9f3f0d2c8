"""Encoding of a registry of metrics as OTLP messages, of a size that collectors accept.

Pure. The messages are built directly, which takes about 7 µs per point. The SDK takes 22 µs to
collect and encode each point, and blocks the event loop for all points at once. It also has no
summaries, which are needed for the quantiles of Kafka's request times
(`bench/own_metrics_beside_sdk` repeats the measurement). The format is `metrics.proto` of
opentelemetry-proto, version 1. All values are cumulative since the start of the process.
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
from ottla.telemetry.metrics.instruments import Buckets, Family, Labels, MetricKind, Summary, Value

SCOPE = InstrumentationScope(name="ottla")

POINTS_PER_SLICE = 256
"""Number of data points that are encoded before other tasks may run. Encoding them takes about a
millisecond."""

POINTS_PER_MESSAGE = 5_000
"""Maximum number of data points in an OTLP message, about 300 KB. Collectors accept 4 MiB by
default."""


def resource_of(attributes: Mapping[str, str]) -> Resource:
    """Return the OTLP resource of a node, with the attributes that identify it."""
    return Resource(attributes=[text_attribute(*pair) for pair in sorted(attributes.items())])


def messages_of(
    families: Iterable[Family | None], resource: Resource, *, start_ns: int, now_ns: int
) -> Iterator[bytes | None]:
    """Yield the metric families encoded as MetricsData messages, and None where other tasks may
    run.

    The values in the messages cover the time from `start_ns` to `now_ns`, both in ns since 1970.
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
    """Writer of a series of OTLP messages from families and samples of metrics."""

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
        """Return the encoded OTLP message built so far, and start another message."""
        data = self._data.SerializeToString()
        self._begin_message()
        return data

    def begin(self, family: Family) -> None:
        """Start a metric family, to which all following samples belong. A family without samples is
        not written."""
        self._family = family
        self._metric = None

    def add(self, labels: Labels, value: Value) -> None:
        """Add one sample of the current metric family to the OTLP message."""
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
    """Return an OTLP attribute with a text value. Characters that UTF-8 cannot encode are
    replaced."""
    return KeyValue(key=name, value=AnyValue(string_value=encodable(text)))
