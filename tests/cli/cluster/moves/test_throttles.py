"""Throttles of moves: the replicas that they name, and throttles left over from earlier moves."""

import pytest

from ottla.cli.cluster.moves.throttles import (
    MovingReplicas,
    ThrottledReplicaLists,
    left_over,
    rate_of,
    throttle_of,
)
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.model.settings.storage.throttled_replicas import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    throttled_replicas,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize(
    ("text", "rate"), [("20M", 20_000_000), ("20Mi", 20 << 20), ("1.5k", 1_500), ("7", 7)]
)
def test_a_rate_has_a_unit_or_none(text: str, rate: int) -> None:
    assert rate_of("--throttle", text) == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "fast", "20MB", "nan", "inf", "1e30"])
def test_anything_else_is_no_rate(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 20M or 20Mi"):
        rate_of("--throttle", text)


def test_a_throttle_names_who_holds_and_who_is_to_copy() -> None:
    throttle = throttle_of(
        [
            MovingReplicas(A0, (1, 2), (3,)),
            MovingReplicas(A1, (2,), (4, 3)),
            MovingReplicas(B0, (1, 2), ()),
        ]
    )

    assert throttle.brokers == (1, 2, 3, 4)
    assert {
        topic: {key: str(replicas) for key, replicas in lists.items()}
        for topic, lists in throttle.lists.items()
    } == {"a": {LEADER_REPLICAS: "0:1,0:2,1:2", FOLLOWER_REPLICAS: "0:3,1:3,1:4"}}


def test_a_move_that_copies_nothing_needs_no_throttle() -> None:
    throttle = throttle_of([MovingReplicas(A0, (1, 2), ())])

    assert not throttle.brokers
    assert not throttle.lists


def lists(topic: str, leader: str, follower: str) -> ThrottledReplicaLists:
    return ThrottledReplicaLists(
        topic,
        {
            LEADER_REPLICAS: throttled_replicas(leader),
            FOLLOWER_REPLICAS: throttled_replicas(follower),
        },
    )


def test_what_names_partitions_that_do_not_move_is_left_over() -> None:
    found = [lists("a", "0:1,1:1", "0:3"), lists("b", "0:1", ""), lists("c", "*", "*")]

    left = left_over(found, {A1})

    assert {
        topic: {key: str(replicas) for key, replicas in removals.items()}
        for topic, removals in left.removals.items()
    } == {
        "a": {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:3"},
        "b": {LEADER_REPLICAS: "0:1"},
    }
    assert left.emptied == {("a", FOLLOWER_REPLICAS), ("b", LEADER_REPLICAS)}
    assert left.every == ["c"]
