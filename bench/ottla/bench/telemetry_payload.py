"""What librdkafka's producer and consumer push when they are asked for everything.  Pure.

Names, units and kinds are librdkafka 2.13's; a client here knows three brokers.
"""

from typing import Any

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

PREFIX = "org.apache.kafka."
BROKERS = ("1", "2", "3")
BEGAN_NS = 1_700_000_000_000_000_000
INTERVAL_NS = 1_000_000_000

PRODUCER = (
    # name, unit, of each broker
    ("producer.connection.creation.rate", "1", False),
    ("producer.node.request.latency.avg", "ms", True),
    ("producer.node.request.latency.max", "ms", True),
    ("producer.produce.throttle.time.avg", "ms", False),
    ("producer.produce.throttle.time.max", "ms", False),
    ("producer.record.queue.time.avg", "ms", False),
    ("producer.record.queue.time.max", "ms", False),
)
CONSUMER = (
    ("consumer.connection.creation.rate", "1", False),
    ("consumer.node.request.latency.avg", "ms", True),
    ("consumer.node.request.latency.max", "ms", True),
    ("consumer.coordinator.assigned.partitions", "1", False),
    ("consumer.coordinator.commit.latency.avg", "ms", False),
    ("consumer.coordinator.commit.latency.max", "ms", False),
    ("consumer.coordinator.rebalance.latency.avg", "ms", False),
    ("consumer.coordinator.rebalance.latency.max", "ms", False),
    ("consumer.fetch.manager.fetch.latency.avg", "ms", False),
    ("consumer.fetch.manager.fetch.latency.max", "ms", False),
    ("consumer.poll.idle.ratio.avg", "1", False),
)
TOTALS = {
    "producer": ("producer.connection.creation.total",),
    "consumer": (
        "consumer.connection.creation.total",
        "consumer.coordinator.rebalance.latency.total",
    ),
}


def payload_of(index: int) -> bytes:
    """Return one push: clients of even numbers are producers, of odd ones consumers."""
    role, gauges = ("consumer", CONSUMER) if index % 2 else ("producer", PRODUCER)
    metrics = [
        _gauge(name, unit, index, BROKERS if is_of_each else ())
        for name, unit, is_of_each in gauges
    ]
    metrics += [_total(name) for name in TOTALS[role]]
    scope = ScopeMetrics(scope=InstrumentationScope(name="librdkafka"), metrics=metrics)
    return MetricsData(
        resource_metrics=[ResourceMetrics(scope_metrics=[scope])]
    ).SerializeToString()


def _gauge(name: str, unit: str, index: int, brokers: tuple[str, ...]) -> Metric:
    points = [
        _point(as_double=(index * 31 + len(name)) % 997 / 7, attributes=attributes)
        for attributes in ([_attribute("node.id", broker)] for broker in brokers)
    ] or [_point(as_double=(index * 31 + len(name)) % 997 / 7)]
    return Metric(name=PREFIX + name, unit=unit, gauge=Gauge(data_points=points))


def _total(name: str) -> Metric:
    totals = Sum(
        data_points=[_point(as_int=1)],
        is_monotonic=True,
        aggregation_temporality=AGGREGATION_TEMPORALITY_DELTA,
    )
    return Metric(name=PREFIX + name, unit="1", sum=totals)


def _point(**more: Any) -> NumberDataPoint:
    return NumberDataPoint(
        start_time_unix_nano=BEGAN_NS, time_unix_nano=BEGAN_NS + INTERVAL_NS, **more
    )


def _attribute(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))
