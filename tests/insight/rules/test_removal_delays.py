"""Partitions that must move before a broker can be removed."""

import pytest

from ottla.insight.facts.removal_driver import leaving_moves
from ottla.insight.facts.replica_assignments import OngoingMove, ReplicaAssignment
from ottla.insight.rules.removal_delays import NAMED_MAX, catch_up_text
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition

ALIVE = (1, 2, 3)
AT = TopicPartition("t", 0)


def test_a_reassignment_under_way_is_awaited_and_not_begun_again() -> None:
    ongoing = [OngoingMove(AT, (2, 1, 3), (2,), (3,))]
    places = [ReplicaAssignment("t", 0, (2, 1, 3))]
    assert leaving_moves(3, places, ongoing, ALIVE, is_alive=True) == {AT}


def test_a_count_of_replicas_that_cannot_be_kept_is_refused() -> None:
    places = [ReplicaAssignment("t", 0, (1, 2, 3))]
    with pytest.raises(RefusedError, match="only 2 other brokers are alive"):
        leaving_moves(3, places, [], ALIVE, is_alive=True)


def test_a_stopped_broker_with_the_only_copy_is_refused() -> None:
    places = [ReplicaAssignment("t", 0, (3,))]
    with pytest.raises(RefusedError, match="the only copy of partition t-0"):
        leaving_moves(3, places, [], (1, 2), is_alive=False)
    assert leaving_moves(3, places, [], ALIVE, is_alive=True) == set()


def test_a_stopped_broker_is_refused_where_its_partition_has_no_leader_to_copy_from() -> None:
    places = [ReplicaAssignment("t", 0, (3, 1))]
    alive = (1, 2)
    with pytest.raises(RefusedError, match=r"t-0 \(on 3, 1\) has no leader to copy from; start it"):
        leaving_moves(3, places, [], alive, is_alive=False, leaderless={AT})
    assert leaving_moves(3, places, [], alive, is_alive=False) == set()


def test_moves_that_take_too_long_say_whom_they_wait_for() -> None:
    moving = [
        OngoingMove(AT, (2, 1, 3), (2,), (3,)),
        OngoingMove(TopicPartition("t", 1), (2, 3), (2,), (3,)),
        OngoingMove(TopicPartition("t", 2), (2, 1, 3), (2,), (3,)),
    ]
    in_sync = {AT: (1, 3), TopicPartition("t", 1): None, TopicPartition("t", 2): (1, 2, 3)}
    assert catch_up_text(moving, in_sync) == (
        "3 partitions did not move in time: t-0 waits for broker 2, "
        "t-1 waits for a leader (replicas: broker 2, broker 3), t-2 waits for the controller"
    )


def test_only_some_of_many_late_partitions_are_named() -> None:
    moving = [OngoingMove(TopicPartition("t", n), (2, 3), (2,), (3,)) for n in range(NAMED_MAX + 2)]
    assert catch_up_text(moving, {}).endswith(
        "t-4 waits for a leader (replicas: broker 2, broker 3), and 2 more"
    )
