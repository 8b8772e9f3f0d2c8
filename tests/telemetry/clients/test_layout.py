"""A layout reads the same values from any push as decoding it, or reports that it cannot."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from ottla.bench.client_metrics.telemetry_payload import payload_of
from ottla.telemetry.clients import layout
from ottla.telemetry.clients.layout import Layouts, PushShape
from ottla.telemetry.clients.otlp import decode, points_of
from ottla.telemetry.clients.outline import Outline, Value, split_points

Build = Callable[..., Any]


def apart(data: bytes) -> tuple[Outline, list[Value]]:
    return split_points(points_of(decode(data)))


def shape_of(data: bytes) -> PushShape | None:
    return Layouts().shape_of(data, apart(data)[1])


def points(data: MetricsData) -> list[Any]:
    return [
        point
        for part in data.resource_metrics
        for scope in part.scope_metrics
        for metric in scope.metrics
        for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points
    ]


@given(
    index=st.integers(0, 5),
    numbers=st.lists(
        st.tuples(
            st.integers(0, (1 << 63) - 1),
            st.integers(-(1 << 63), (1 << 63) - 1),
            st.floats(allow_nan=False),
        ),
        min_size=19,
        max_size=19,
    ),
)
def test_another_push_of_the_same_series_is_read_as_it_is_decoded(
    index: int, numbers: list[tuple[int, int, float]]
) -> None:
    first = payload_of(index)
    shape = shape_of(first)
    assert shape is not None
    message = MetricsData.FromString(first)
    for point, (time_ns, integer, real) in zip(points(message), numbers, strict=False):
        point.start_time_unix_nano, point.time_unix_nano = 1, time_ns or 1
        if point.HasField("as_int"):
            point.as_int = integer
        else:
            point.as_double = real
    second = message.SerializeToString()

    assert shape.values_of(second) == apart(second)[1]
    assert apart(second)[0] == apart(first)[0]


@given(
    index=st.integers(0, 1),
    flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=4),
)
def test_what_is_read_from_damage_is_what_decoding_gives(
    index: int, flips: list[tuple[int, int]]
) -> None:
    first = payload_of(index)
    shape = shape_of(first)
    assert shape is not None
    data = bytearray(first)
    for position, byte in flips:
        data[position % len(data)] = byte
    found = shape.values_of(bytes(data))
    if found is None:
        return
    outline, values = apart(bytes(data))
    assert outline == apart(first)[0]
    assert list(map(repr, found)) == list(map(repr, values))  # as texts: NaN equals nothing


def test_other_names_attributes_or_sizes_are_another_shape(
    counter: Build, gauge: Build, pushed: Build
) -> None:
    first = pushed(counter("sent", 1, topic="a"), gauge("level", 0.5))
    shape = shape_of(first)
    assert shape is not None
    assert shape.values_of(first) == [1, 0.5]
    for other in (
        pushed(counter("sell", 1, topic="a"), gauge("level", 0.5)),
        pushed(counter("sent", 1, topic="b"), gauge("level", 0.5)),
        pushed(counter("sent", 1.0, topic="a"), gauge("level", 0.5)),
        pushed(counter("sent", 1, is_delta=False, topic="a"), gauge("level", 0.5)),
        pushed(counter("sent", 1, topic="a")),
        pushed(counter("sent", 1, topic="a"), gauge("level", 0.5), gauge("more", 1)),
        first + b"\x00",
        b"",
    ):
        assert shape.values_of(other) is None


def test_what_is_not_only_numbers_has_no_shape(counter: Build, pushed: Build) -> None:
    def altered(change: Callable[[MetricsData], None]) -> bytes:
        message = MetricsData.FromString(pushed(counter("a", 1), counter("b", 2)))
        change(message)
        return message.SerializeToString()

    def metric(message: MetricsData) -> Any:
        return message.resource_metrics[0].scope_metrics[0].metrics[0]

    def as_histogram(message: MetricsData) -> None:
        metric(message).histogram.data_points.add(count=1, sum=2.0)

    def without_value(message: MetricsData) -> None:
        metric(message).sum.data_points[0].ClearField("value")

    def not_recorded(message: MetricsData) -> None:
        metric(message).sum.data_points[0].flags = 1

    def not_a_number(message: MetricsData) -> None:
        metric(message).sum.data_points[0].as_double = float("nan")

    def two_resources(message: MetricsData) -> None:
        message.resource_metrics.add().CopyFrom(message.resource_metrics[0])

    for change in (as_histogram, without_value, not_recorded, not_a_number, two_resources):
        assert shape_of(altered(change)) is None, change.__name__
    assert shape_of(altered(lambda _: None)) is not None


def test_a_point_with_two_values_has_no_shape() -> None:
    """Handmade: no serializer writes the two of a oneof."""
    doubles = bytes.fromhex("21" + "00" * 8 + "31" + "00" * 8)
    number = bytes([0x0A, len(doubles)]) + doubles
    gauge = bytes([0x2A, len(number)]) + number
    metric = b"\x0a\x01m" + gauge
    scope = bytes([0x12, len(metric)]) + metric
    part = bytes([0x12, len(scope)]) + scope
    data = bytes([0x0A, len(part)]) + part
    assert apart(data)[1] == [0]
    assert shape_of(data) is None


def test_clients_of_a_kind_share_a_layout_and_layouts_are_bounded(
    monkeypatch: pytest.MonkeyPatch, gauge: Build, pushed: Build
) -> None:
    monkeypatch.setattr(layout, "LAYOUTS_MAX", 2)
    layouts = Layouts()
    shapes = []
    for name in ("aa", "bb", "c", "d" * 3, "ee"):
        data = pushed(gauge(name, 1.5))
        shape = layouts.shape_of(data, [1.5])
        assert shape is not None
        shapes.append(shape)
    assert shapes[0].layout is shapes[1].layout
    assert shapes[0].fixed_hash != shapes[1].fixed_hash
    assert shapes[4].layout is not shapes[0].layout, "it was forgotten"
