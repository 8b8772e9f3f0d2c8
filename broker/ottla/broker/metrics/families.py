"""Families of one number, or of a few, declared by Kafka's MBean names."""

from collections.abc import Iterable

from ottla.telemetry.instruments import Family, Labels, MetricKind, Sample, Value
from ottla.telemetry.kafka_names import prometheus_name


def gauge(mbean: str, text: str, value: Value) -> Family:
    """Return one number of Kafka's."""
    return Family(prometheus_name(mbean), MetricKind.GAUGE, text, (), (((), value),))


def counter(mbean: str, text: str, value: Value) -> Family:
    """Return one number of Kafka's that only grows."""
    return Family(prometheus_name(mbean), MetricKind.COUNTER, text, (), (((), value),))


def gauges(mbean: str, text: str, label_names: Labels, samples: Iterable[Sample]) -> Family:
    """Return some numbers of Kafka's."""
    return Family(prometheus_name(mbean), MetricKind.GAUGE, text, label_names, samples)
