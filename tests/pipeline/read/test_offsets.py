"""Positions of a query: their format, the range between two, and the size of a batch."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.pipeline.read.offsets import (
    EARLIEST,
    LATEST,
    AllPartitions,
    BatchDelay,
    FromTimestamp,
    OffsetPerPartition,
    StreamPosition,
    TimestampPerPartition,
    ask_for,
    between,
    is_behind,
    parse_partition_offsets,
    rate_limited,
    record_count,
)
from ottla.pipeline.read.ranges import OffsetRange

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PARTITIONS = st.sampled_from([TopicPartition(topic, n) for topic in "abc" for n in range(3)])
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 1_000))
IDS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["Xl3-", "q_9"]))
POSITIONS = st.builds(StreamPosition, OFFSETS, IDS, st.none() | OFFSETS)


@given(POSITIONS)
def test_a_position_comes_back_from_the_checkpoint_as_it_was(position: StreamPosition) -> None:
    assert StreamPosition.from_json(json.loads(json.dumps(position.to_json()))) == position


def test_a_position_is_the_json_of_sparks_own_connector() -> None:
    position = StreamPosition({A1: 7, A0: 250_000, B0: 0})
    assert json.dumps(position.to_json()) == '{"a": {"0": 250000, "1": 7}, "b": {"0": 0}}'


@given(POSITIONS)
def test_what_is_ours_in_a_position_is_no_partition_to_the_connector(
    position: StreamPosition,
) -> None:
    # It reads topics of partitions of offsets, and makes one partition of each pair.
    pairs = {
        (t, int(n)): at for t, reported in position.to_json().items() for n, at in reported.items()
    }
    assert pairs == {(at.topic, at.partition): end for at, end in position.offsets.items()}


@pytest.mark.parametrize(
    "text",
    ['{"a": 7}', '{"a": {"x": 7}}', '{"a": {"0": "7"}}', '{"a": {"0": true}}', '{"a": {"-1": 7}}'],
)
def test_other_json_is_no_offsets(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a"):
        parse_partition_offsets(json.loads(text))


# ---- what lies between


@given(st.lists(POSITIONS, min_size=2, max_size=5))
def test_batches_that_follow_each_other_read_every_offset_once(ends: list[StreamPosition]) -> None:
    grown: dict[TopicPartition, int] = {}
    positions = []
    for one in ends:
        grown = {at: max(end, grown.get(at, 0)) for at, end in (grown | dict(one.offsets)).items()}
        positions.append(StreamPosition(grown))
    read: list[tuple[str, int, int]] = []
    for start, end in pairwise(positions):
        batch = between(start, end)
        assert batch.losses == ()
        read += [(*one[:2], offset) for one in batch.ranges for offset in range(*one[2:4])]
    first, last = positions[0].offsets, positions[-1].offsets
    wanted = {(*at, offset) for at, end in last.items() for offset in range(first.get(at, 0), end)}
    assert len(read) == len(wanted)
    assert set(read) == wanted


def test_a_new_partition_is_read_from_its_first_record() -> None:
    batch = between(StreamPosition({A0: 5}), StreamPosition({A0: 7, A1: 3}))
    assert batch == ((OffsetRange("a", 0, 5, 7), OffsetRange("a", 1, 0, 3)), ())


def test_a_partition_or_topic_that_is_gone_is_a_loss() -> None:
    batch = between(StreamPosition({A0: 5, A1: 4, B0: 1}), StreamPosition({A0: 5}))
    assert batch.losses == ("a-1 is gone", "b-0 is gone")


def test_an_end_that_went_back_is_a_loss_and_nothing_is_read_twice() -> None:
    batch = between(StreamPosition({A0: 5}), StreamPosition({A0: 3}))
    assert batch == ((), ("a-0 ends at 3 but was read up to 5",))
    assert is_behind(StreamPosition({A0: 5}), StreamPosition({A0: 3}))


def test_a_recreated_topic_is_read_from_its_first_record_however_much_it_has() -> None:
    start = StreamPosition({A0: 5, A1: 2}, {"a": "old"})
    for end_offset in (3, 5, 9):
        batch = between(start, StreamPosition({A0: end_offset}, {"a": "new"}))
        assert batch.ranges == (OffsetRange("a", 0, 0, end_offset, "new"),)
        assert batch.losses == ("topic 'a' was deleted and created again",)
        assert not is_behind(start, StreamPosition({A0: end_offset}, {"a": "new"}))


def test_a_checkpoint_of_sparks_own_connector_knows_no_ids_and_is_gone_on_with() -> None:
    start = StreamPosition.from_json({"a": {"0": 5}})
    assert between(start, StreamPosition({A0: 7}, {"a": "new"})) == (
        (OffsetRange("a", 0, 5, 7, "new"),),
        (),
    )


def test_a_repeated_first_batch_begins_where_it_did_whatever_latest_is_now() -> None:
    end = StreamPosition({A0: 7}, {"a": "id"}, begin={A0: 5})
    later = StreamPosition({A0: 99}, {"a": "id"})
    assert between(later, end) == ((OffsetRange("a", 0, 5, 7, "id"),), ())


def test_there_is_nothing_between_a_position_and_itself() -> None:
    end = StreamPosition({A0: 7}, {"a": "id"}, begin={A0: 5})
    assert between(end, end) == ((), ())


# ---- how much a batch takes


@given(OFFSETS, OFFSETS, st.integers(1, 2_000))
def test_a_rate_is_shared_out_by_what_partitions_have(
    started: dict[TopicPartition, int], more: dict[TopicPartition, int], limit: int
) -> None:
    start = StreamPosition(started)
    latest = StreamPosition({at: started.get(at, 0) + count for at, count in more.items()})
    end = rate_limited(limit, start, latest, {})
    total = sum(more.values())
    for at, count in more.items():
        taken = end.offsets[at] - started.get(at, 0)
        share = limit * count / max(total, 1)
        assert taken <= count
        assert taken == min(count, 1 if 0 < share < 1 else int(share + 1e-9))


def test_a_rate_takes_new_partitions_from_where_their_log_begins() -> None:
    end = rate_limited(
        10, StreamPosition({A0: 5}), StreamPosition({A0: 105, A1: 1_100}), {A1: 1_000}
    )
    assert end.offsets == {A0: 10, A1: 1_005}
    remade = rate_limited(
        10, StreamPosition({A0: 5}, {"a": "old"}), StreamPosition({A0: 105}, {"a": "new"}), {}
    )
    assert remade.offsets == {A0: 10}


def test_the_records_ahead_are_counted() -> None:
    assert (
        record_count(StreamPosition({A0: 5}), StreamPosition({A0: 105, A1: 1_100}), {A1: 1_000})
        == 200
    )


def test_a_small_batch_is_held_back_until_it_is_large_or_has_waited() -> None:
    patience = BatchDelay(min_count=100, delay_ms_max=1_000)
    assert patience.may_start(1, now_ms=0)
    assert not patience.may_start(99, now_ms=999)
    assert patience.may_start(99, now_ms=1_000)
    assert patience.may_start(100, now_ms=1_001)
    assert not patience.may_start(99, now_ms=2_000)


# ---- places


def test_edges_and_times_are_asked_for_in_every_partition() -> None:
    assert ask_for(AllPartitions(EARLIEST), [A0, B0]).asked == {A0: -2, B0: -2}
    assert ask_for(FromTimestamp(1_700), [A0, B0]).asked == {A0: 1_700, B0: 1_700}
    assert ask_for(TimestampPerPartition({A0: 3, B0: 4}), [A0, B0]) == ({}, {A0: 3, B0: 4})


def test_offsets_that_stand_for_edges_are_asked_for_and_others_are_known() -> None:
    place = OffsetPerPartition({A0: 23, A1: EARLIEST, B0: LATEST})
    assert ask_for(place, [A0, A1, B0]) == ({A0: 23}, {A1: -2, B0: -1})


def test_a_place_names_the_partitions_that_are_read_and_no_others() -> None:
    with pytest.raises(ValueError, match=r"^says nothing of a-1$"):
        ask_for(OffsetPerPartition({A0: 1}), [A0, A1])
    with pytest.raises(ValueError, match=r"^names b-0, which the query does not read$"):
        ask_for(TimestampPerPartition({A0: 1, B0: 1}), [A0])
