"""A node's own metrics, as OTLP."""

from collections.abc import Iterable
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Metric,
    MetricsData,
)

from ottla.telemetry.metrics.instruments import Family, Histogram, MetricKind, Summary
from ottla.telemetry.metrics.own_otlp import (
    POINTS_PER_MESSAGE,
    POINTS_PER_SLICE,
    messages_of,
    resource_of,
)

START_NS, NOW_NS = 1_000, 2_000
NODE = {"service.name": "ottla", "service.instance.id": "1"}


def messages(families: Iterable[Family | None]) -> list[MetricsData]:
    found = messages_of(families, resource_of(NODE), start_ns=START_NS, now_ns=NOW_NS)
    return [MetricsData.FromString(data) for data in found if data is not None]


def metrics(families: Iterable[Family | None]) -> dict[str, Metric]:
    return {
        metric.name: metric
        for message in messages(families)
        for metric in message.resource_metrics[0].scope_metrics[0].metrics
    }


def texts(attributes: Iterable[Any]) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in attributes}


def test_counters_are_cumulative_sums_and_gauges_are_gauges() -> None:
    found = metrics(
        [
            Family("ottla_n_total", MetricKind.COUNTER, "N.", ("topic",), [((), 5), (("a",), 2)]),
            None,
            Family("ottla_x", MetricKind.GAUGE, "X.", (), [((), 0.5)]),
        ]
    )

    counted = found["ottla_n_total"].sum
    assert counted.is_monotonic
    assert counted.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    assert [(texts(p.attributes), p.as_int) for p in counted.data_points] == [
        ({}, 5),
        ({"topic": "a"}, 2),
    ]
    first = counted.data_points[0]
    assert (first.start_time_unix_nano, first.time_unix_nano) == (START_NS, NOW_NS)
    assert found["ottla_x"].gauge.data_points[0].as_double == 0.5
    assert found["ottla_x"].description == "X."


def test_distributions_keep_their_shape() -> None:
    histogram = Histogram((10, 20))
    for at in (5, 15, 99):
        histogram.observe(at)
    summary = Summary(7, 3.5, ((0.5, 0.25), (0.99, 2.0)))
    found = metrics(
        [
            Family("ottla_s", MetricKind.HISTOGRAM, "S.", (), [((), histogram.buckets())]),
            Family("ottla_ms", MetricKind.SUMMARY, "M.", ("request",), [(("Fetch",), summary)]),
        ]
    )

    bucketed = found["ottla_s"].histogram.data_points[0]
    assert list(bucketed.explicit_bounds) == [10, 20]
    assert list(bucketed.bucket_counts) == [1, 1, 1]
    assert (bucketed.count, bucketed.sum) == (3, 119)
    data = found["ottla_ms"].summary.data_points[0]
    assert (data.count, data.sum) == (7, 3.5)
    assert [(q.quantile, q.value) for q in data.quantile_values] == [(0.5, 0.25), (0.99, 2)]


def test_many_points_are_exported_in_messages_small_enough_for_collectors() -> None:
    count = 2 * POINTS_PER_MESSAGE + 7
    family = Family(
        "ottla_x", MetricKind.GAUGE, "X.", ("a",), [((str(at),), at) for at in range(count)]
    )

    found = list(messages_of([family], resource_of(NODE), start_ns=START_NS, now_ns=NOW_NS))

    decoded = [MetricsData.FromString(data) for data in found if data is not None]
    points = [
        [point.as_int for point in part.scope_metrics[0].metrics[0].gauge.data_points]
        for message in decoded
        for part in message.resource_metrics
    ]
    assert [len(each) for each in points] == [POINTS_PER_MESSAGE, POINTS_PER_MESSAGE, 7]
    assert [at for each in points for at in each] == list(range(count))
    assert found.count(None) >= 2 * (POINTS_PER_MESSAGE // POINTS_PER_SLICE)
    assert all(
        texts(part.resource.attributes) == NODE for m in decoded for part in m.resource_metrics
    )


def test_a_family_without_samples_and_a_registry_without_families_send_nothing() -> None:
    assert messages([Family("ottla_x", MetricKind.GAUGE, "X.", (), ()), None]) == []


def test_opentelemetrys_sdk_still_has_no_summaries() -> None:
    # With them, one reason to encode a node's metrics without the SDK would be gone.
    sdk = pytest.importorskip("opentelemetry.sdk.metrics.export")
    assert {"Sum", "Gauge", "Histogram"} <= set(dir(sdk))
    assert not [name for name in dir(sdk) if "Summary" in name]
