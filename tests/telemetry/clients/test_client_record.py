"""A push and its record in `__client_metrics` have the same content."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from ottla.model.errors import CorruptDataError
from ottla.proto.client_metrics_pb2 import ClientMetricsRecord
from ottla.telemetry.clients.client_record import RECORD_BYTES_MAX, decode_record, encode_records
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.otlp import decode, label, points_of

Build = Callable[..., Any]


def test_a_record_says_who_pushed_when_and_every_point(
    labels_of: Build, counter: Build, gauge: Build, pushed: Build
) -> None:
    latency = Metric(name="latency")
    latency.histogram.data_points.add(count=2, sum=3.5, explicit_bounds=[1], bucket_counts=[1, 1])
    data = pushed(
        counter("records", 7, topic="t"), counter("bytes", 2.0), gauge("age", 1.5), latency
    )
    push = LabelledPush(labels_of(3), 1_700_000_000_123, label(decode(data), labels_of(3)))

    (value,), left_out = encode_records(push)

    assert left_out == 0
    assert decode_record(value) == (labels_of(3), 1_700_000_000_123, list(points_of(decode(data))))


def test_a_push_too_large_for_one_record_becomes_several(
    labels_of: Build, counter: Build, pushed: Build
) -> None:
    metrics = [counter(f"m{number}", number, note="x" * 1_000) for number in range(2_000)]
    huge = counter("huge", 1, note="x" * RECORD_BYTES_MAX)
    data = pushed(*metrics[:700], huge, *metrics[700:])
    push = LabelledPush(labels_of(3), 5, label(decode(data), labels_of(3)))

    values, left_out = encode_records(push)

    assert left_out == 1, "a point that no record holds"
    assert len(values) == 5
    assert max(map(len, values)) <= RECORD_BYTES_MAX
    decoded = [decode_record(value) for value in values]
    assert {(labels, received_ms) for labels, received_ms, _ in decoded} == {(labels_of(3), 5)}
    assert [point.value for _, _, points in decoded for point in points] == list(range(2_000))


def test_integers_stay_integers_and_doubles_doubles(
    labels_of: Build, counter: Build, pushed: Build
) -> None:
    data = pushed(counter("a", 0), counter("b", 0.0), counter("c", -(1 << 62)))
    (value,), _ = encode_records(LabelledPush(labels_of(), 1, label(decode(data), labels_of())))
    kinds = [point.WhichOneof("value") for point in ClientMetricsRecord.FromString(value).points]
    assert kinds == ["int_value", "double_value", "int_value"]


@given(st.binary(max_size=200))
def test_random_bytes_are_a_record_or_corrupt(value: bytes) -> None:
    with suppress(CorruptDataError):
        decode_record(value)


def test_a_record_without_a_client_is_corrupt() -> None:
    with pytest.raises(CorruptDataError):
        decode_record(b"")
