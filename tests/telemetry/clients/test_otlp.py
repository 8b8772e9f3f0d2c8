"""OTLP is parsed within bounds, labelled with the broker's knowledge of the client, and split into
points."""

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.ids import uuid_text
from ottla.model.limits import MIB
from ottla.telemetry.clients.client_labels import LABEL_NAMES, ClientLabels
from ottla.telemetry.clients.otlp import (
    HistogramValue,
    Point,
    PointKind,
    decode,
    label,
    points_of,
    reread,
)
from ottla.telemetry.clients.otlp_bounds import (
    PARTS_MAX,
    POINTS_MAX,
    RESOURCES_MAX,
    UNCOUNTED_BYTES_MAX,
    check_parts,
    fields_of,
)

Build = Callable[..., Any]


def test_a_counter_and_a_gauge_become_points(counter: Build, gauge: Build, pushed: Build) -> None:
    data = pushed(
        counter("org.apache.kafka.producer.record.send.total", 7, node_id="1"),
        gauge("org.apache.kafka.producer.record.queue.time.avg", 2.5),
        group_id="g",
    )
    assert list(points_of(decode(data))) == [
        Point(
            "org.apache.kafka.producer.record.send.total", "1", PointKind.SUM, True, True,
            (("group_id", "g"), ("node_id", "1")), 5, 9, 7,
        ),
        Point(
            "org.apache.kafka.producer.record.queue.time.avg", "", PointKind.GAUGE, False, False,
            (("group_id", "g"),), 0, 9, 2.5,
        ),
    ]  # fmt: skip


def test_a_histogram_becomes_a_point_and_one_that_does_not_add_up_keeps_count_and_sum() -> None:
    metric = Metric(name="latency")
    metric.histogram.aggregation_temporality = 1  # type: ignore[assignment]
    metric.histogram.data_points.add(
        count=3, sum=6.0, explicit_bounds=[1, 2], bucket_counts=[1, 0, 2]
    )
    metric.histogram.data_points.add(count=3, sum=6.0, explicit_bounds=[1], bucket_counts=[3])
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.append(metric)

    values = [point.value for point in points_of(data)]

    assert values == [
        HistogramValue(3, 6.0, (1.0, 2.0), (1, 0, 2)),
        HistogramValue(3, 6.0, (), ()),
    ]


def test_attributes_of_every_simple_kind_are_texts(counter: Build) -> None:
    metric = counter("a", 0.0)
    for name, kind, value in (
        ("text", "string_value", "t"),
        ("none", "string_value", ""),
        ("yes", "bool_value", True),
        ("no", "bool_value", False),
        ("int", "int_value", 0),
        ("double", "double_value", 0.5),
    ):
        setattr(metric.sum.data_points[0].attributes.add(key=name).value, kind, value)
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.append(metric)
    (point,) = points_of(data)
    assert dict(point.attributes) == {
        "text": "t", "none": "", "yes": "true", "no": "false", "int": "0", "double": "0.5",
    }  # fmt: skip


@pytest.mark.parametrize("value", [0, 0.0, 7, 7.5, -1, -0.5])
def test_a_value_keeps_its_type(counter: Build, pushed: Build, value: float) -> None:
    (point,) = points_of(decode(pushed(counter("a", value))))
    assert (point.value, type(point.value)) == (value, type(value))


def test_a_point_without_a_value_is_no_point(counter: Build, pushed: Build) -> None:
    metric = counter("a", 1)
    metric.sum.data_points[0].flags = 1
    assert list(points_of(decode(pushed(metric)))) == []


def test_every_resource_is_labelled_with_what_the_broker_knows(
    labels_of: Build, counter: Build, pushed: Build
) -> None:
    labels: ClientLabels = labels_of(4)
    request = ExportMetricsServiceRequest.FromString(
        label(decode(pushed(counter("a", 1), group_id="g")), labels)
    )
    (part,) = request.resource_metrics
    attributes = {pair.key: pair.value.string_value for pair in part.resource.attributes}
    assert attributes == {"group_id": "g", **dict(labels.pairs())}
    assert attributes["client_instance_id"] == uuid_text(labels.client_instance_id)
    assert part.scope_metrics[0].metrics[0].name == "a"


def test_a_client_cannot_label_itself(labels_of: Build, counter: Build, pushed: Build) -> None:
    theirs = dict.fromkeys(LABEL_NAMES, "forged")
    labelled = label(decode(pushed(counter("a", 1), **theirs, rack="r")), labels_of())
    assert b"forged" not in labelled
    (part,) = decode(labelled).resource_metrics
    names = [pair.key for pair in part.resource.attributes]
    assert names == ["rack", *LABEL_NAMES]


def test_labels_do_not_come_back_as_attributes_of_points(
    labels_of: Build, counter: Build, pushed: Build
) -> None:
    labelled = label(decode(pushed(counter("a", 1, node_id="1"), rack="r")), labels_of())
    (point,) = points_of(decode(labelled))
    assert point.attributes == (("rack", "r"), ("node_id", "1"))


def test_equal_resources_become_one(labels_of: Build, counter: Build, pushed: Build) -> None:
    metrics = [counter(f"m{number}", number) for number in range(50)]
    labelled = label(decode(pushed(*metrics, like_java=True)), labels_of())
    data = decode(labelled)
    assert len(data.resource_metrics) == 1
    assert [point.name for point in points_of(data)] == [metric.name for metric in metrics]


def test_pushes_in_a_row_are_one_request(labels_of: Build, counter: Build, pushed: Build) -> None:
    both = b"".join(
        label(decode(pushed(counter("a", number))), labels_of(number)) for number in (1, 2)
    )
    request = ExportMetricsServiceRequest.FromString(both)
    assert len(request.resource_metrics) == 2


def test_a_long_client_id_is_cut(labels_of: Build) -> None:
    pairs = dict(labels_of(client_id="x" * 30_000).pairs())
    assert pairs["client_id"] == "x" * 256


@given(st.binary(max_size=300))
def test_random_bytes_are_otlp_or_corrupt(data: bytes) -> None:
    with suppress(CorruptDataError):
        list(points_of(decode(data)))


def test_many_empty_parts_are_refused_before_their_memory_is_taken() -> None:
    # Sixteen MiB of empty points: two bytes each here, some fifty times that once decoded.
    points = b"\x0a\x00" * (8 * MIB - 64)
    data = points
    for tag in (b"\x2a", b"\x12", b"\x12", b"\x0a"):  # gauge, metric, scope, resource
        data = tag + varint(len(data)) + data
    tracemalloc.start()
    try:
        with pytest.raises(RefusedError, match="parts"):
            decode(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 * MIB


def test_too_many_points_are_refused() -> None:
    metric = Metric(name="a")
    for _ in range(POINTS_MAX):
        metric.gauge.data_points.add()
    assert sum(1 for _ in points_of(decode(one_resource_with(metric)))) == POINTS_MAX
    metric.gauge.data_points.add()
    with pytest.raises(RefusedError, match="points"):
        decode(one_resource_with(metric))


def test_a_name_that_comes_to_too_much_with_all_its_points_is_refused() -> None:
    metric = Metric(name="a" * 9_000)
    for _ in range(2_000):
        metric.sum.data_points.add()
    with pytest.raises(RefusedError, match="names"):
        decode(one_resource_with(metric))


def test_a_resource_that_comes_to_too_much_with_all_points_is_refused() -> None:
    data = MetricsData()
    part = data.resource_metrics.add()
    for number in range(3_000):  # as texts some 30 KB, as references as many of each point
        part.resource.attributes.add(key=f"k{number}")
    metric = part.scope_metrics.add().metrics.add(name="a")
    for _ in range(1_000):
        metric.gauge.data_points.add()
    with pytest.raises(RefusedError, match="names"):
        decode(data.SerializeToString())


def test_too_many_different_resources_are_refused(labels_of: Build) -> None:
    data = MetricsData()
    for number in range(RESOURCES_MAX + 1):
        data.resource_metrics.add(schema_url=str(number))
    with pytest.raises(RefusedError, match="resources"):
        label(data, labels_of())
    del data.resource_metrics[-1]
    labelled = label(data, labels_of())
    assert len(reread(labelled).resource_metrics) == RESOURCES_MAX


def test_what_was_taken_is_read_again_though_labels_made_it_more(
    labels_of: Build, counter: Build, pushed: Build
) -> None:
    metric = counter("a", 1)
    room = PARTS_MAX - parts_of(pushed(metric))
    while room > 0:  # a note of two bytes and more in many small parts, up to the bound
        metric.sum.data_points[0].exemplars.add()
        room -= 1
    data = pushed(metric) + bytes_that_are_skipped()
    with pytest.raises(RefusedError, match="parts"):
        decode(data)
    del metric.sum.data_points[0].exemplars[-2:]
    labelled = label(decode(pushed(metric) + bytes_that_are_skipped()), labels_of())
    assert parts_of(labelled) > PARTS_MAX
    (point,) = points_of(reread(labelled))
    assert point.value == 1


def one_resource_with(metric: Metric) -> bytes:
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.append(metric)
    return data.SerializeToString()


def parts_of(data: bytes) -> int:
    """Count the parts of a message the slow way: all that has a length in front, at any depth."""
    count = 0
    messages: list[Any] = [MetricsData.FromString(data)]
    while messages:
        for field, value in messages.pop().ListFields():
            values = value if field.is_repeated else [value]
            if field.message_type is not None:
                messages.extend(values)
                count += len(values)
            elif field.type == field.TYPE_STRING:
                count += len(values)
            elif field.is_repeated:
                count += 1
    return count


def test_parts_nested_too_deep_are_refused() -> None:
    # AnyValue.array_value.values…: a message in a message in a message.
    data = b""
    for _ in range(40):
        data = b"\x0a" + varint(len(data)) + data  # values
        data = b"\x2a" + varint(len(data)) + data  # array_value
    for tag in (b"\x12", b"\x0a", b"\x0a", b"\x0a"):  # value, attribute, resource, part
        data = tag + varint(len(data)) + data
    with pytest.raises(CorruptDataError, match="deep"):
        check_parts(data + bytes_that_are_skipped(), fields_of(MetricsData.DESCRIPTOR))


def test_a_long_push_of_sound_metrics_is_read(counter: Build, pushed: Build) -> None:
    metrics = [counter(f"metric.{number}", number, topic="t" * 200) for number in range(3_000)]
    data = pushed(*metrics)
    assert len(data) > UNCOUNTED_BYTES_MAX
    assert [point.value for point in points_of(decode(data))] == list(range(3_000))


@pytest.mark.parametrize("cut_bytes", [1, 100, 10_000])
def test_a_long_push_that_is_cut_is_corrupt(counter: Build, pushed: Build, cut_bytes: int) -> None:
    data = pushed(*[counter(f"metric.{number}", 1, topic="t" * 200) for number in range(3_000)])
    with pytest.raises(CorruptDataError):
        decode(data[:-cut_bytes])


def test_what_is_too_short_to_have_too_many_parts_is_not_counted() -> None:
    assert UNCOUNTED_BYTES_MAX // 2 == PARTS_MAX


def varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def bytes_that_are_skipped() -> bytes:
    """Return a text field that no message has, long enough for the whole to be looked at."""
    return b"\x7a" + varint(UNCOUNTED_BYTES_MAX) + bytes(UNCOUNTED_BYTES_MAX)
