"""Metrics that librdkafka's producer and consumer push if a subscription requests all metrics.
Pure.

Names, kinds, descriptions and order were observed with librdkafka 2.16. The payload describes a
client that is connected to three brokers and the bootstrap address.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

PREFIX = "org.apache.kafka."
BROKERS = (1, 2, 3, -1)
BEGAN_NS = 1_700_000_000_000_000_000
INTERVAL_NS = 1_000_000_000


class PushedMetric(NamedTuple):
    """One metric that a client pushes."""

    name: str
    description: str
    is_of_each_broker: bool = False


PRODUCER = (
    PushedMetric("connection.creation.rate", "The rate of connections established per second."),
    PushedMetric("connection.creation.total", "The total number of connections established."),
    PushedMetric("node.request.latency.avg", "The average request latency in ms for a node.", True),
    PushedMetric("node.request.latency.max", "The maximum request latency in ms for a node.", True),
    PushedMetric("produce.throttle.time.avg", "The average throttle time in ms for a node."),
    PushedMetric("produce.throttle.time.max", "The maximum throttle time in ms for a node."),
    PushedMetric("record.queue.time.avg", "The average record queue time in ms for a node."),
    PushedMetric("record.queue.time.max", "The maximum record queue time in ms for a node."),
    PushedMetric("request.latency.avg", "The average request latency in ms for produce requests."),
    PushedMetric("request.latency.max", "The maximum request latency in ms for produce requests."),
)
CONSUMER = (
    *PRODUCER[:4],
    PushedMetric("coordinator.assigned.partitions", "The number of partitions currently assigned."),
    PushedMetric("coordinator.rebalance.latency.avg", "The average rebalance latency in ms."),
    PushedMetric("coordinator.rebalance.latency.max", "The maximum rebalance latency in ms."),
    PushedMetric("coordinator.rebalance.latency.total", "The total rebalance latency in ms."),
    PushedMetric("fetch.manager.fetch.latency.avg", "The average fetch latency in ms."),
    PushedMetric("fetch.manager.fetch.latency.max", "The maximum fetch latency in ms."),
    PushedMetric("poll.idle.ratio.avg", "The average fraction of time poll was idle."),
    PushedMetric("coordinator.commit.latency.avg", "The average commit latency in ms."),
    PushedMetric("coordinator.commit.latency.max", "The maximum commit latency in ms."),
)


def payload_of(index: int) -> bytes:
    """Return the payload of one push of metrics: a producer's metrics if `index` is even, otherwise
    a consumer's."""
    role, pushed = ("consumer", CONSUMER) if index % 2 else ("producer", PRODUCER)
    metrics = [metric for one in pushed for metric in _metrics_of(role, one, index)]
    scope = InstrumentationScope(name=f"bench#{role}-{index}", version="2.16.0")
    resource = Resource()
    if role == "consumer":
        resource.attributes.append(_attribute("group_id", string_value="bench"))
        resource.attributes.append(_attribute("member_id", string_value=f"bench-{index:036}"))
    scoped = ScopeMetrics(scope=scope, metrics=metrics)
    resources = [ResourceMetrics(resource=resource, scope_metrics=[scoped])]
    return MetricsData(resource_metrics=resources).SerializeToString()


def _metrics_of(role: str, pushed: PushedMetric, index: int) -> Iterator[Metric]:
    name = f"{PREFIX}{role}.{pushed.name}"
    if name.endswith(".total"):
        sums = Sum(
            data_points=[_point(as_int=1)],
            is_monotonic=True,
            aggregation_temporality=AGGREGATION_TEMPORALITY_DELTA,
        )
        yield Metric(name=name, description=pushed.description, sum=sums)
        return
    for broker in BROKERS if pushed.is_of_each_broker else (None,):
        number = (index * 31 + len(name) * 7 + (broker or 0)) % 997
        point = _point(as_int=number) if name.endswith("max") else _point(as_double=number / 7)
        if broker is not None:
            point.attributes.append(_attribute("node.id", int_value=broker))
        gauge = Gauge(data_points=[point])
        yield Metric(name=name, description=pushed.description, gauge=gauge)


def _point(**value: Any) -> NumberDataPoint:
    return NumberDataPoint(
        start_time_unix_nano=BEGAN_NS, time_unix_nano=BEGAN_NS + INTERVAL_NS, **value
    )


def _attribute(name: str, **value: Any) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(**value))
