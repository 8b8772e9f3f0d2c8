"""Encoding of metric points as a compressed OTLP message, within the maximum size that the broker
accepts.

Pure. The structure is defined by `metrics.proto` of opentelemetry-proto, version 1. As in
librdkafka's reports, the message contains one resource. KIP-714 defines its attributes (`group_id`,
`transactional_id`, …).
"""

from collections.abc import Mapping, Sequence

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Metric,
    MetricsData,
    NumberDataPoint,
)

from ottla.client.telemetry.metric_points import DatedPoint, MetricPointKind
from ottla.telemetry.metrics.own_otlp import resource_of, text_attribute
from ottla.wire.compression import Codec, compress

SCOPE = InstrumentationScope(name="ottla.client")


def payload_of(
    points: Sequence[DatedPoint],
    attributes: Mapping[str, str],
    *,
    is_delta: bool,
    now_ns: int,
    codec: Codec,
    bytes_max: int,
) -> bytes:
    """Encode the payload of a push of metrics.

    If the payload would exceed `bytes_max`, points with labels (of brokers and partitions) are
    omitted. If the payload is still too large, all points are omitted. KIP-714 requires that a
    client sends less in this case.
    """
    payload = b""
    for chosen in (points, [one for one in points if not one.point.labels], []):
        data = _message(chosen, attributes, is_delta=is_delta, now_ns=now_ns)
        payload = compress(codec, data) if data else b""
        if len(payload) <= bytes_max:
            break
    return payload


def _message(
    points: Sequence[DatedPoint], attributes: Mapping[str, str], *, is_delta: bool, now_ns: int
) -> bytes:
    if not points:
        return b""
    data = MetricsData()
    part = data.resource_metrics.add(resource=resource_of(attributes))
    metrics = part.scope_metrics.add(scope=SCOPE).metrics
    by_name: dict[str, Metric] = {}
    for dated in points:
        point = dated.point
        metric = by_name.get(point.name)
        if metric is None:
            metric = by_name[point.name] = metrics.add(name=point.name)
        found = NumberDataPoint(
            attributes=[text_attribute(*label) for label in point.labels],
            start_time_unix_nano=dated.start_ns,
            time_unix_nano=now_ns,
        )
        if isinstance(point.value, int):
            found.as_int = point.value
        else:
            found.as_double = point.value
        if point.kind is MetricPointKind.SUM:
            metric.sum.aggregation_temporality = (
                AGGREGATION_TEMPORALITY_DELTA if is_delta else AGGREGATION_TEMPORALITY_CUMULATIVE
            )
            metric.sum.is_monotonic = True
            metric.sum.data_points.append(found)
        else:
            metric.gauge.data_points.append(found)
    return data.SerializeToString()
