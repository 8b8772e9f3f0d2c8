"""Records of client metrics as Arrow: every point, its series, and the fields that copies share."""

import math
from typing import Any

import pyarrow as pa

from ottla.pipeline.rollup.points import attributes_text, pushes


def reported(*values: bytes | None) -> list[dict[str, Any]]:
    array = pushes(values)
    assert isinstance(array, pa.StructArray)
    array.validate(full=True)
    assert len(array) == len(values)
    return [dict(row) for row in array.to_pylist(maps_as_pydicts="strict")]


def as_dict(row: Any) -> dict[str, Any]:
    return dict(row)


def points(push: dict[str, Any]) -> list[dict[str, Any]]:
    return [as_dict(point) for point in push["points"]]


def test_a_record_becomes_who_pushed_when_and_what(hand: Any) -> None:
    labels = hand.who(7, "orders", broker_id=3)
    (push,) = reported(
        hand.record(
            labels,
            1.5,
            hand.total("sent", 40, hand.times(0, 1)),
            hand.gauge("wait", 2.5, hand.times(-1, 1), zone="b", node="1"),
            hand.histogram("took", (1, 2, 3), (0.5, 1.0), hand.times(0, 1), value_sum=9.0),
        )
    )
    assert (push["client_id"], push["broker_id"], push["principal"]) == ("orders", 3, "User:a")
    assert len(push["client_instance_id"]) == 22
    assert push["received_ms"] == hand.epoch_ms + 1_500
    assert push["problem"] is None
    sent, wait, took = points(push)
    assert (sent["metric"], sent["kind"], sent["value"]) == ("sent", "sum", 40.0)
    assert not sent["is_cumulative"]
    assert sent["end_ns"] == (hand.epoch_ms + 1_000) * 1_000_000
    assert (wait["kind"], wait["value"], wait["start_ns"]) == ("gauge", 2.5, 0)
    assert wait["attributes"] == '{"node": "1", "zone": "b"}'
    assert (took["kind"], took["value"], took["count"], took["sum"]) == ("histogram", None, 6, 9.0)
    assert (took["bounds"], took["counts"]) == ([0.5, 1.0], [1, 2, 3])


def test_a_sum_since_the_beginning_is_cumulative_and_one_that_may_fall_is_a_gauge(
    hand: Any,
) -> None:
    at = hand.times(0, 1)
    metrics = [
        hand.total("delta", 1, at),
        hand.total("whole", 1, at, cumulative=True),
        hand.total("falls", 1, at, cumulative=True, monotonic=False),
        hand.total("moved", 1, at, monotonic=False),
    ]
    (push,) = reported(hand.record(hand.who(1), 1, *metrics))
    kinds = {point["metric"]: (point["kind"], point["is_cumulative"]) for point in points(push)}
    assert kinds == {
        "delta": ("sum", False),
        "whole": ("sum", True),
        "falls": ("gauge", False),
        "moved": ("sum", False),
    }


def test_a_copy_of_a_push_has_its_id_wherever_and_whenever_it_came(hand: Any) -> None:
    def push(broker_id: int, received_s: float, value: int, *, instance: int = 1) -> str:
        metric = hand.total("sent", value, hand.times(0, 1))
        labels = hand.who(instance, "app", broker_id)
        return str(reported(hand.record(labels, received_s, metric))[0]["push_id"])

    assert push(1, 1.0, 5) == push(2, 1.7, 5)
    assert len({push(1, 1.0, 5), push(1, 1.0, 6), push(1, 1.0, 5, instance=2)}) == 3


def test_pushes_that_do_not_say_their_time_are_distinguished_by_when_they_came(hand: Any) -> None:
    timeless = hand.total("sent", 5, {})
    ids = [reported(hand.record(hand.who(1), at_s, timeless))[0]["push_id"] for at_s in (1, 1, 2)]
    assert ids[0] == ids[1] != ids[2]


def test_what_one_push_says_twice_of_a_series_is_distinguished(hand: Any) -> None:
    at = hand.times(0, 1)
    twice = [hand.gauge("wait", 1.0, at, a="1", b="2"), hand.gauge("wait", 3.0, at, b="2", a="1")]
    (push,) = reported(hand.record(hand.who(1), 1, *twice, hand.gauge("wait", 5.0, at)))
    assert [point["ordinal"] for point in points(push)] == [0, 1, 0]


def test_values_that_are_no_number_are_left_out(hand: Any) -> None:
    at = hand.times(0, 1)
    metrics = [hand.gauge(f"g{value}", value, at) for value in (math.nan, math.inf, -math.inf, 1.0)]
    metrics.append(hand.histogram("h", (1, 1), (math.nan,), at))
    (push,) = reported(hand.record(hand.who(1), 1, *metrics))
    assert [point["value"] for point in points(push)] == [1.0]


def test_what_cannot_be_read_is_a_push_without_points_that_tells_why(hand: Any) -> None:
    good = hand.record(hand.who(1), 1, hand.total("sent", 1, {}))
    bad, fine, none, empty = reported(b"\xff\xff", good, None, b"")
    assert bad["problem"].startswith("a record of client metrics")
    assert (bad["points"], bad["push_id"], bad["client_id"]) == ([], None, None)
    assert fine["problem"] is None
    assert len(points(fine)) == 1
    assert none["problem"] == empty["problem"] == "a client instance id is not 16 bytes"


def test_numbers_beyond_64_bits_with_a_sign_are_the_largest_that_there_is(hand: Any) -> None:
    largest = (1 << 63) - 1
    at = {"start_time_unix_nano": 1 << 63, "time_unix_nano": (1 << 64) - 1}
    (push,) = reported(
        hand.record(hand.who(1), 1, hand.histogram("took", ((1 << 63) - 1, 1), (1.0,), at))
    )
    (point,) = points(push)
    assert (point["start_ns"], point["end_ns"]) == (largest, largest)
    assert (point["count"], point["counts"]) == (largest, [largest, 1])


def test_attributes_are_equal_in_any_order() -> None:
    assert attributes_text((("b", "2"), ("a", "ä"))) == '{"a": "ä", "b": "2"}'
    assert attributes_text((("a", "1"), ("a", "2"))) == '{"a": "2"}'
