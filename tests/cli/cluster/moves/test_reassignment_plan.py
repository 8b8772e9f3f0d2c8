"""Plans of moves: even shares, few moves, other racks, and the file of Kafka's own tool."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.cluster.moves.move_bars import bar
from ottla.cli.cluster.moves.reassign import _bars, _check_evacuated
from ottla.cli.cluster.moves.reassignment_plan import (
    Domain,
    Move,
    as_plan,
    moves_of,
    read_plan,
    spread,
    without,
)
from ottla.cli.cluster.moves.reassignment_requests import copied_part
from ottla.insight.facts.replica_assignments import OngoingMove, ReplicaAssignment
from ottla.model.errors import ConfigError, RefusedError
from ottla.model.ids import TopicPartition


def places(*replicas: tuple[int, ...], topic: str = "t") -> list[ReplicaAssignment]:
    return [ReplicaAssignment(topic, index, one) for index, one in enumerate(replicas)]


def no_racks(*brokers: int) -> dict[int, Domain]:
    return dict.fromkeys(brokers, Domain(None))


def test_replicas_go_to_hosts_that_have_none() -> None:
    hosts = {id_: Domain(None, f"host-{id_ // 100}") for id_ in (100, 101, 102, 200, 201, 300)}

    for place in spread(places((100,), (101,), (102,), (200,)), hosts, 3):
        assert {hosts[one].host for one in place.replicas} == {"host-1", "host-2", "host-3"}
    for place in without(places((100, 200), (101, 200), (102, 200)), 200, hosts):
        assert len({hosts[one].host for one in place.replicas}) == 2
        assert 200 not in place.replicas


def test_levelling_moves_no_replica_to_a_host_of_another() -> None:
    hosts = {id_: Domain(None, f"host-{id_ // 100}") for id_ in (100, 101, 200, 201)}
    now = places((100, 200), (100, 200), (100, 200), (100, 200))

    for place in spread(now, hosts):
        assert len({hosts[one].host for one in place.replicas}) == 2


def test_what_lies_evenly_already_stays() -> None:
    now = places((1, 2), (2, 3), (3, 1))
    assert moves_of(now, spread(now, no_racks(1, 2, 3))) == []


def test_a_new_broker_gets_its_share_and_no_other_replica_moves() -> None:
    now = places((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    moves = moves_of(now, spread(now, no_racks(1, 2, 3)))
    assert sum(len(move.adding) for move in moves) == 4
    assert {one for move in moves for one in move.adding} == {3}


def test_a_broker_that_is_not_chosen_keeps_nothing() -> None:
    now = places((1, 2), (2, 3), (3, 1))
    after = spread(now, no_racks(2, 3, 4))
    assert all(1 not in place.replicas for place in after)


def test_more_copies_go_to_racks_that_have_none() -> None:
    now = places((1,), (2,))
    racks = {1: Domain("a"), 2: Domain("a"), 3: Domain("b"), 4: Domain("b")}
    for place in spread(now, racks, 2):
        assert {racks[one].rack for one in place.replicas} == {"a", "b"}


def test_fewer_copies_keep_the_first() -> None:
    now = places((1, 2, 3), (2, 3, 1), (3, 1, 2))
    assert spread(now, no_racks(1, 2, 3), 1) == places((1,), (2,), (3,))


def test_an_evacuated_brokers_replicas_are_taken_over_in_their_place() -> None:
    now = places((1, 2), (2, 3), (3, 1))
    after = without(now, 1, no_racks(1, 2, 3, 4))
    assert after == places((4, 2), (2, 3), (3, 4))


def test_a_broker_that_does_not_exist_cannot_be_evacuated() -> None:
    now = places((1, 2), (2, 3))
    with pytest.raises(RefusedError, match="BROKER_ID_NOT_REGISTERED: there is no broker 9"):
        _check_evacuated(now, 9, {1, 2, 3})


def test_a_broker_with_nothing_on_it_or_unregistered_with_replicas_left_can_be_evacuated() -> None:
    _check_evacuated(places((1, 2)), 3, {1, 2, 3})
    _check_evacuated(places((1, 4)), 4, {1, 2, 3})


def test_too_few_brokers_for_the_replicas_are_refused() -> None:
    with pytest.raises(ConfigError, match="leaves 1"):
        spread(places((1, 2)), no_racks(1))
    with pytest.raises(ConfigError, match="leaves 1"):
        without(places((1, 2)), 1, no_racks(1, 2))
    assert without(places((2, 3)), 1, no_racks(1, 2, 3)) == places((2, 3))


@given(
    now=st.lists(
        st.lists(st.integers(1, 6), min_size=2, max_size=2, unique=True).map(tuple), max_size=40
    ),
    chosen=st.sets(st.integers(1, 6), min_size=2),
)
def test_shares_are_even_within_one_and_little_moves(
    now: list[tuple[int, ...]], chosen: set[int]
) -> None:
    before = places(*now)
    after = spread(before, no_racks(*chosen))
    load = Counter(dict.fromkeys(chosen, 0))
    load.update(one for place in after for one in place.replicas)
    assert all(len(set(place.replicas)) == 2 for place in after)
    assert set(load) == chosen
    assert max(load.values()) - min(load.values()) <= 1
    copies = sum(len(move.adding) for move in moves_of(before, after))
    stayed = Counter(one for place in before for one in place.replicas if one in chosen)
    share = 2 * len(now) // len(chosen)
    gone = 2 * len(now) - stayed.total()
    # Who takes over for a broker that goes may come above its share, and give another away.
    assert copies <= 2 * gone + sum(max(0, count - share) for count in stayed.values())


def test_a_plan_is_kept_and_read_as_kafkas_tool_does() -> None:
    written = json.dumps(as_plan(places((1, 2))))
    assert json.loads(written) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}],
    }
    assert read_plan(written, "file") == places((1, 2))


@pytest.mark.parametrize("text", ["", "{}", '{"partitions": [{"topic": "t"}]}', "[]"])
def test_what_is_no_plan_is_refused_with_what_it_must_be(text: str) -> None:
    with pytest.raises(ConfigError, match="it must be JSON such as"):
        read_plan(text, "file")


def test_a_move_tells_who_comes_and_who_goes() -> None:
    move = Move(ReplicaAssignment("t", 0, (1, 2)), ReplicaAssignment("t", 0, (2, 3)))
    assert (move.adding, move.removing) == ((3,), (1,))


def test_a_move_is_as_far_as_the_bytes_that_are_copied() -> None:
    assert copied_part({1: 100, 2: 100, 3: 50}, (3,)) == 0.5
    assert copied_part({1: 100, 3: 50, 4: 0}, (3, 4)) == 0.25
    assert copied_part({1: 100, 3: 120}, (3,)) == 1.0
    assert copied_part({1: 0}, (3,)) == 1.0
    assert copied_part({1: 100}, ()) == 1.0


def test_bars_tell_how_far_the_moves_are() -> None:
    first_at, second_at = TopicPartition("t", 1), TopicPartition("t", 0)
    moving = [
        OngoingMove(first_at, (1, 2, 3), (3,), (1,)),
        OngoingMove(second_at, (1, 2), (2,), (1,)),
    ]
    whole, first, second = _bars(moving, {first_at: 0.5, second_at: 0.0}, 4)
    assert whole == "[###############---------]  62.5 %  2 of 4 partitions moved"
    assert first == "[############------------]  50.0 %  t-1  to 2,3"
    assert second.endswith("0.0 %  t-0  to 2")
    assert len(_bars(moving * 10, dict.fromkeys([first_at, second_at], 0.0), 20)) == 14
    assert bar(1.0) == "[########################] 100.0 %"
