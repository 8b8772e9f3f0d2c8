"""Rollups of pushes built by the test: totals are the sums of all pushes, in any order."""

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.model.errors import ConfigError
from ottla.pipeline.rollup import frames
from ottla.pipeline.rollup.frames import RollupOptions

MINUTE = RollupOptions()
SCHEMA = "value binary, partition int, offset long"


class RollupRows:
    """Rows of one query over the pushes of every test, by the clients of each test."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = sorted(rows, key=lambda row: (row.window_start, row.metric, row.broker_id))

    def of(self, client_id: str) -> list[Any]:
        return [row for row in self._rows if row.client_id == client_id]


def points_of(spark: Any, values: Iterable[bytes], options: RollupOptions = MINUTE) -> Any:
    rows = [(bytearray(value), 0, offset) for offset, value in enumerate(values)]
    decoded = frames.decoded(spark.createDataFrame(rows, SCHEMA))
    return frames.points_of(frames.first_copies(decoded), options)


def copied(hand: Any) -> list[bytes]:
    def push(number: int, value: int, received_s: float, broker_id: int = 1) -> bytes:
        labels = hand.who(1, "copied", broker_id)
        at = hand.times(10 * number, 10 * number + 10)
        return bytes(hand.record(labels, received_s, hand.total("sent.total", value, at)))

    return [
        push(0, 1_000, 11),
        push(1, 20, 21),
        push(1, 20, 22),  # the broker wrote it again
        push(1, 20, 23, broker_id=2),  # the client sent it again, to another broker
        push(5, 300, 61),
    ]


def several(hand: Any) -> list[bytes]:
    return [
        hand.record(hand.who(number, "several", broker_id), 5, hand.total("failed", 2**50, {}))
        for number, broker_id in ((1, 1), (2, 1), (3, 2))
    ]


def whole(hand: Any) -> list[bytes]:
    def push(value: int, start_s: float, end_s: float) -> bytes:
        reported = hand.total("seen", value, hand.times(start_s, end_s), cumulative=True)
        return bytes(hand.record(hand.who(1, "whole"), end_s, reported))

    return [
        push(100, 0, 10),  # in full: it says what was seen since the client began
        push(150, 0, 20),
        push(150, 0, 30),
        push(7, 31, 40),  # it fell
        push(9, 45, 50),  # it says that it began after the last one ended
        push(140, 0, 15),  # came late: what it says is in a later one already
    ]


def seen(hand: Any) -> list[bytes]:
    return [
        hand.record(
            hand.who(1, "seen"), at_s, hand.gauge("wait", float(at_s), hand.times(-1, at_s))
        )
        for at_s in range(1, 51)
    ]


def spread(hand: Any) -> list[bytes]:
    def push(counts: tuple[int, ...], value_sum: float, end_s: float, instance: int) -> bytes:
        shape = {"value_sum": value_sum, "cumulative": instance == 2}
        reported = hand.histogram("took", counts, (10.0, 20.0), hand.times(0, end_s), **shape)
        return bytes(hand.record(hand.who(instance, "spread"), end_s, reported))

    return [
        push((50, 0, 0), 200.0, 10, instance=1),
        push((0, 40, 0), 600.0, 10, instance=2),
        push((0, 50, 0), 750.0, 20, instance=2),
    ]


def in_order(hand: Any, client_id: str, step: int) -> list[bytes]:
    """Return pushes whose sum has another last digit when they are added or merged in another
    order."""
    numbers = [1 / number for number in range(3, 33)][::step]
    bounds = [(number, 2 * number) for number in numbers]
    records = []
    for at_s, (number, pair) in enumerate(zip(numbers, bounds, strict=True)):
        metrics = [
            hand.total("added", number, {}),
            hand.gauge("seen", number, {}),
            hand.histogram("took", (1, 2, 3), pair, {}, value_sum=number),
        ]
        records.append(hand.record(hand.who(1 + step % 3, client_id), at_s, *metrics))
    return records


@pytest.fixture(scope="module")
def reported(spark: Any, hand: Any) -> RollupRows:
    values = [value for made in (copied, several, whole, seen, spread) for value in made(hand)]
    values += in_order(hand, "forwards", 1) + in_order(hand, "backwards", -1)
    added = frames.contributions(points_of(spark, values))
    return RollupRows(frames.rolled_up(frames.with_window(added, MINUTE), MINUTE).collect())


def test_windows_hold_what_was_added_in_them_and_each_copy_of_a_push_once(
    reported: RollupRows, hand: Any
) -> None:
    rows = reported.of("copied")
    windows = [(row.window_start.timestamp(), row.total, row.points, row.rate) for row in rows]
    begin = hand.epoch_ms / 1_000
    assert windows == [(begin, 1_020.0, 2, 17.0), (begin + 60, 300.0, 1, 5.0)]
    first = rows[0].asDict()
    assert (first["broker_id"], first["clients"], first["is_late"]) == (1, 1, False)
    assert (first["kind"], first["is_error"], first["mean"]) == ("sum", False, None)
    assert (first["window_end"] - first["window_start"]).total_seconds() == 60


def test_clients_of_one_name_are_counted_and_added_and_of_other_brokers_distinguished(
    reported: RollupRows,
) -> None:
    rows = reported.of("several")
    assert [(row.broker_id, row.clients, row.total) for row in rows] == [
        (1, 2, 2.0**51),
        (2, 1, 2.0**50),
    ]
    assert all(row.is_error for row in rows)


def test_cumulative_points_are_what_they_grew_and_start_again_when_they_fall_or_say_so(
    reported: RollupRows,
) -> None:
    (row,) = reported.of("whole")
    assert (row.kind, row.total) == ("sum", 100 + 50 + 0 + 7 + 9)


def test_gauges_tell_how_their_values_lie(reported: RollupRows) -> None:
    (row,) = reported.of("seen")
    assert (row.kind, row.points, row.total, row.rate) == ("gauge", 50, None, None)
    assert (row.mean, row.min, row.max, row.p50) == (25.5, 1.0, 50.0, 25.5)
    assert row.p99 == pytest.approx(49.51)


def test_histograms_are_reported_as_one_and_cumulative_ones_by_their_growth(
    reported: RollupRows,
) -> None:
    (row,) = reported.of("spread")
    assert (row.kind, row.observations, row.total, row.clients) == ("histogram", 100, 950.0, 2)
    assert (row.mean, row.p50, row.p99) == (9.5, 10.0, pytest.approx(19.8))
    assert row.rate == pytest.approx(100 / 60)


def test_rows_are_the_same_to_the_last_bit_in_whatever_order_points_come(
    reported: RollupRows,
) -> None:
    forwards = [row.asDict() for row in reported.of("forwards")]
    backwards = [row.asDict() for row in reported.of("backwards")]
    assert [row.pop("client_id") for row in forwards] == ["forwards"] * 3
    assert [row.pop("client_id") for row in backwards] == ["backwards"] * 3
    assert forwards == backwards


def test_what_a_series_had_before_is_not_counted_again(spark: Any, hand: Any) -> None:
    def push(value: int, end_s: float, instance: int = 1) -> bytes:
        reported = hand.total("seen", value, hand.times(0, end_s), cumulative=True)
        return bytes(hand.record(hand.who(instance), end_s, reported))

    first = [push(100, 10), push(120, 20), push(5, 20, instance=2)]
    heads = frames.heads_after(points_of(spark, first)).persist()
    assert sorted(row.value for row in heads.collect()) == [5.0, 120.0]
    again = points_of(
        spark, [push(120, 20), push(110, 15), push(125, 30), push(1, 20, instance=3)]
    ).persist()
    assert sorted(row.value for row in frames.growth(again, heads).collect()) == [1.0, 5.0]
    kept = frames.heads_after(again, heads)
    assert sorted(row.value for row in kept.collect()) == [1.0, 5.0, 125.0]


def test_rollups_are_made_by_what_was_asked_for(spark: Any, hand: Any) -> None:
    values = [
        hand.record(
            hand.who(1, client_id),
            5,
            hand.gauge("latency", value, {}, **{"node.id": node}),
            hand.gauge("other", value, {}),
        )
        for client_id, node, value in (("a", "1", 1.0), ("b", "1", 3.0), ("b", "2", 9.0))
    ]
    by_node = RollupOptions(by=("node.id",), metrics=("lat", "nothing"))
    added = frames.contributions(points_of(spark, values, by_node), has_cumulative=False)
    rows = frames.rolled_up(frames.with_window(added, by_node), by_node).collect()
    assert sorted((row.node_id, row.metric, row.max) for row in rows) == [
        ("1", "latency", 3.0),
        ("2", "latency", 9.0),
    ]


def test_a_plan_is_made_without_asking_spark_as_declared_pipelines_demand(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("who plans for a declared pipeline may not ask what a plan comes to")

    records = spark.createDataFrame([], SCHEMA)
    for name in ("columns", "schema", "dtypes"):
        monkeypatch.setattr(type(records), name, property(asked))
    monkeypatch.setattr(type(records), "drop", asked)
    monkeypatch.setattr("pyspark.sql.types._parse_datatype_string", asked)
    pushes = frames.first_copies(frames.decoded(records))
    added = frames.contributions(frames.points_of(pushes, RollupOptions(by=("node.id",))))
    frames.rolled_up(frames.with_window(added, MINUTE), MINUTE)


def test_what_rollups_cannot_be_made_by_is_refused() -> None:
    with pytest.raises(ConfigError, match="by: has 'total', which is a column"):
        RollupOptions(by=("client_id", "total"))
    with pytest.raises(ConfigError, match="by: has"):
        RollupOptions(by=("node.id", "node-id"))
    for wrong in ("clientid", "client.id", "client_source_adress"):
        with pytest.raises(ConfigError, match=r"did you mean (client_id|client_source_address)\?"):
            RollupOptions(by=(wrong,))
    attributes = ("node.id", "client_rack", "group_id", "member_id", "transactional_id")
    assert RollupOptions(by=attributes).by == attributes
    with pytest.raises(ConfigError, match="window: is 0 ms; it must be above 0"):
        RollupOptions(window_ms=0)
