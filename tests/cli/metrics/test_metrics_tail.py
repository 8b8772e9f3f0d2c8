"""Pushes of a client, as `ottla metrics tail` shows them."""

from uuid import UUID

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)

from ottla.cli.metrics.metrics_tail import as_json, line_of
from ottla.client import PushedMetrics
from ottla.model.ids import NodeId
from ottla.telemetry.clients.otlp import decode, points_of

TOPIC = KeyValue(key="topic", value=AnyValue(string_value="t"))
INSTANCE_ID = UUID(int=1 << 100)


def push(metric: Metric, client_id: str | None = "app") -> PushedMetrics:
    data = MetricsData(
        resource_metrics=[ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=[metric])])]
    )
    return PushedMetrics(
        node=NodeId(1),
        client_instance_id=INSTANCE_ID,
        client_id=client_id,
        software_name="librdkafka",
        software_version="2.13",
        source_address="10.0.0.9",
        received_ms=1_700_000_000_042,
        otlp=data.SerializeToString(),
    )


def total(value: int, temporality: int) -> Metric:
    point = NumberDataPoint(as_int=value, attributes=[TOPIC], start_time_unix_nano=5_000_000)
    sums = Sum(
        data_points=[point],
        is_monotonic=True,
        aggregation_temporality=temporality,  # type: ignore[arg-type]  # the stub's enum
    )
    return Metric(name="sent.total", unit="1", sum=sums)


@pytest.mark.parametrize(
    ("metric", "shown"),
    [
        (total(7, AGGREGATION_TEMPORALITY_DELTA), "sent.total{topic=t}  +7"),
        (total(7, AGGREGATION_TEMPORALITY_CUMULATIVE), "sent.total{topic=t}  7"),
        (
            Metric(
                name="rtt", unit="ms", gauge=Gauge(data_points=[NumberDataPoint(as_double=2.5)])
            ),
            "rtt  2.5 ms",
        ),
        (
            Metric(
                name="size",
                unit="bytes",
                histogram=Histogram(data_points=[HistogramDataPoint(count=4, sum=10)]),
            ),
            "size  4 of 2.5 bytes each",
        ),
    ],
    ids=["delta", "cumulative", "gauge", "histogram"],
)
def test_a_value_is_one_line_when_who_what_how_much(metric: Metric, shown: str) -> None:
    one = push(metric)
    (point,) = points_of(decode(one.otlp))
    assert line_of(one, point) == f"22:13:20.042  app  {shown}"


def test_a_client_without_an_id_is_called_by_its_instance() -> None:
    one = push(total(1, AGGREGATION_TEMPORALITY_DELTA), client_id=None)
    (point,) = points_of(decode(one.otlp))
    assert line_of(one, point).split()[1] == "AAAAEAAAAAAAAAAAAAAAAA"


def test_a_machine_gets_a_push_with_all_that_is_known() -> None:
    one = push(total(7, AGGREGATION_TEMPORALITY_DELTA))
    assert as_json(one, list(points_of(decode(one.otlp)))) == {
        "received_ms": 1_700_000_000_042,
        "broker": 1,
        "client_instance_id": "AAAAEAAAAAAAAAAAAAAAAA",
        "client_id": "app",
        "software_name": "librdkafka",
        "software_version": "2.13",
        "source_address": "10.0.0.9",
        "metrics": [
            {
                "name": "sent.total",
                "unit": "1",
                "kind": "sum",
                "is_delta": True,
                "attributes": {"topic": "t"},
                "start_ms": 5,
                "end_ms": 0,
                "value": 7,
            }
        ],
    }
