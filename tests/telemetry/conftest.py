"""What a client pushes, built with OpenTelemetry's own messages."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from ottla.telemetry.client_labels import ClientLabels

DELTA, CUMULATIVE = 1, 2


@pytest.fixture
def labels_of() -> Callable[..., ClientLabels]:
    """Return the labels of the n-th client, any of them replaced."""

    def make(number: int = 1, **replaced: Any) -> ClientLabels:
        labels = ClientLabels(
            client_instance_id=UUID(int=1_000 + number),
            client_id=f"app-{number}",
            principal="User:ANONYMOUS",
            software_name="librdkafka",
            software_version="2.16.1",
            source_address="127.0.0.1",
            broker_id=1,
        )
        return labels._replace(**replaced)

    return make


@pytest.fixture
def counter() -> Callable[..., Metric]:
    """Return a monotonic sum with one point."""

    def make(name: str, value: float, *, is_delta: bool = True, **attributes: str) -> Metric:
        metric = Metric(name=name, unit="1")
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = DELTA if is_delta else CUMULATIVE  # type: ignore[assignment]
        point = metric.sum.data_points.add(start_time_unix_nano=5, time_unix_nano=9)
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
        point.attributes.extend(attribute(name, text) for name, text in attributes.items())
        return metric

    return make


@pytest.fixture
def gauge() -> Callable[..., Metric]:
    """Return a gauge with one point."""

    def make(name: str, value: float, **attributes: str) -> Metric:
        metric = Metric(name=name)
        point = metric.gauge.data_points.add(as_double=value, time_unix_nano=9)
        point.attributes.extend(attribute(name, text) for name, text in attributes.items())
        return metric

    return make


@pytest.fixture
def pushed() -> Callable[..., bytes]:
    """Return what a client sends: one resource, as librdkafka, or one a metric, as Java."""

    def make(*metrics: Metric, like_java: bool = False, **of_resource: str) -> bytes:
        data = MetricsData()
        for group in [[metric] for metric in metrics] if like_java else [metrics]:
            part = data.resource_metrics.add()
            part.resource.attributes.extend(
                attribute(name, text) for name, text in of_resource.items()
            )
            part.scope_metrics.add().metrics.extend(group)
        return data.SerializeToString()

    return make


def attribute(name: str, text: str) -> KeyValue:
    pair = KeyValue(key=name)
    pair.value.string_value = text
    return pair
