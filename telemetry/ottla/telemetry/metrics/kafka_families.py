"""Metric families that consist of one or a few numbers and have the names of Kafka's MBeans."""

from collections.abc import Iterable

from ottla.telemetry.metrics.instruments import Family, Labels, MetricKind, Sample, Value
from ottla.telemetry.metrics.kafka_names import prometheus_name


def gauge(mbean: str, text: str, value: Value) -> Family:
    """Return a gauge family with one sample, under the Prometheus name of a Kafka MBean. `text` is
    its help text."""
    return Family(prometheus_name(mbean), MetricKind.GAUGE, text, (), (((), value),))


def counter(mbean: str, text: str, value: Value) -> Family:
    """Return a counter family with one sample, under the Prometheus name of a Kafka MBean. `text`
    is its help text."""
    return Family(prometheus_name(mbean), MetricKind.COUNTER, text, (), (((), value),))


def gauges(mbean: str, text: str, label_names: Labels, samples: Iterable[Sample]) -> Family:
    """Return a gauge family with labelled samples, under the Prometheus name of a Kafka MBean.
    `text` is its help text."""
    return Family(prometheus_name(mbean), MetricKind.GAUGE, text, label_names, samples)
