"""Pushes built by the test, as records of `__client_metrics`, by the fixture `hand`."""

from collections.abc import Sequence
from typing import Any
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

from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.client_record import encode_records
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.otlp import label

SECOND_NS = 1_000_000_000
EPOCH_MS = 1_800_000_000_000
"""A moment at which a minute begins; tests count from it."""
assert EPOCH_MS % 60_000 == 0


class Hand:
    """Makes pushes; times are seconds since EPOCH_MS."""

    epoch_ms = EPOCH_MS

    @staticmethod
    def who(number: int, client_id: str = "app", broker_id: int = 1) -> ClientLabels:
        """Return the labels of one client instance."""
        return ClientLabels(
            UUID(int=number), client_id, "User:a", "lib", "1.0", "10.0.0.1", broker_id
        )

    @staticmethod
    def times(start_s: float, end_s: float) -> dict[str, int]:
        """Return a point's times, in seconds since EPOCH_MS; a negative one is absent."""
        named = {"start_time_unix_nano": start_s, "time_unix_nano": end_s}
        return {
            name: int(EPOCH_MS * 1_000_000 + at_s * SECOND_NS)
            for name, at_s in named.items()
            if at_s >= 0
        }

    @staticmethod
    def total(
        name: str,
        value: float,
        at: dict[str, int],
        *,
        cumulative: bool = False,
        monotonic: bool = True,
    ) -> Metric:
        """Return a sum metric: the increase since its start time, or the total since the
        beginning."""
        temporality = (
            AGGREGATION_TEMPORALITY_CUMULATIVE if cumulative else AGGREGATION_TEMPORALITY_DELTA
        )
        points = [_number(value, at)]
        reported = Sum(
            data_points=points, is_monotonic=monotonic, aggregation_temporality=temporality
        )
        return Metric(name=name, sum=reported)

    @staticmethod
    def gauge(name: str, value: float, at: dict[str, int], **attributes: str) -> Metric:
        """Return a gauge metric with the value at a time."""
        point = _number(value, at)
        point.attributes.extend(
            KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in attributes.items()
        )
        return Metric(name=name, gauge=Gauge(data_points=[point]))

    @staticmethod
    def histogram(
        name: str,
        counts: Sequence[int],
        bounds: Sequence[float],
        at: dict[str, int],
        *,
        value_sum: float = 0.0,
        cumulative: bool = False,
    ) -> Metric:
        """Return how often values fell between bounds."""
        temporality = (
            AGGREGATION_TEMPORALITY_CUMULATIVE if cumulative else AGGREGATION_TEMPORALITY_DELTA
        )
        fields: dict[str, Any] = {"explicit_bounds": bounds, "bucket_counts": counts, **at}
        point = HistogramDataPoint(count=sum(counts), sum=value_sum, **fields)
        reported = Histogram(data_points=[point], aggregation_temporality=temporality)
        return Metric(name=name, histogram=reported)

    @staticmethod
    def payload(*metrics: Metric) -> MetricsData:
        """Return a client's push."""
        scopes = [ScopeMetrics(metrics=metrics)]
        return MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=scopes)])

    @staticmethod
    def record(labels: ClientLabels, received_s: float, *metrics: Metric) -> bytes:
        """Return the record of a push that a broker received some seconds after EPOCH_MS."""
        received_ms = EPOCH_MS + int(received_s * 1_000)
        push = LabelledPush(labels, received_ms, label(Hand.payload(*metrics), labels))
        (value,), left_out = encode_records(push)
        assert left_out == 0
        return value


def _number(value: float, at: dict[str, int]) -> NumberDataPoint:
    fields: dict[str, Any] = {"as_int" if isinstance(value, int) else "as_double": value}
    return NumberDataPoint(**fields, **dict[str, Any](at))


@pytest.fixture(scope="session")
def hand() -> Hand:
    """Pushes made by hand."""
    return Hand()
