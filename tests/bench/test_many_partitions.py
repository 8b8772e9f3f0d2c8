"""The failover of many partitions: the brokers written to, and the end of each phase."""

from ottla.bench.many_partitions import OpenPartitions, replicas_of
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_NODE


def test_the_other_brokers_come_first_among_the_followers_in_turns() -> None:
    assert [replicas_of(index, 1, [2, 3]) for index in range(3)] == [
        [1, 2, 3],
        [1, 3, 2],
        [1, 2, 3],
    ]


def test_partitions_of_the_dead_broker_or_of_none_are_not_written_to() -> None:
    left = OpenPartitions(4)
    assert left.by_leader({0: 2, 1: 1, 2: NO_NODE, 3: 3}, without=1) == {2: [0], 3: [3]}


def test_a_partition_that_the_metadata_lacks_stays_open() -> None:
    left = OpenPartitions(2)
    assert left.by_leader({0: 2}, without=1) == {2: [0]}
    left.note([(0, ErrorCode.NONE)])
    assert left
    assert left.by_leader({0: 2, 1: 3}, without=1) == {3: [1]}


def test_what_was_refused_is_written_to_again() -> None:
    left = OpenPartitions(2)
    left.note([(0, ErrorCode.NONE), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)])
    assert left.by_leader({0: 2, 1: 3}, without=1) == {3: [1]}
    left.note([(1, ErrorCode.NONE)])
    assert not left
