"""Partitions move to other brokers while they are used (KIP-455): Kafka's rules and codes."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.in_memory_controller import InMemoryController, directory_id
from ottla.metadata.directories import UNASSIGNED
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_NODE, NodeId
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)

BROKERS = (1, 2, 3, 4, 5, 6)


def create(cluster: InMemoryController, name: str, *replicas: int, **configs: str) -> None:
    cluster.forward(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
                    ],
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ]
        )
    )


@pytest.fixture
def cluster() -> InMemoryController:
    made = InMemoryController(min_insync_replicas=2)
    made.start(*BROKERS)
    create(made, "t", 1, 2, 3)
    return made


def reassign(
    cluster: InMemoryController,
    replicas: Sequence[int] | None,
    *,
    topic: str = "t",
    partition: int = 0,
    may_resize: bool = True,
) -> tuple[int, str | None]:
    """Ask for one partition's new replicas, None to cancel; return the code and message."""
    asked = ReassignablePartition(
        partition_index=partition, replicas=None if replicas is None else list(replicas)
    )
    reply = cluster.forward(
        AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=may_resize,
            topics=[ReassignableTopic(name=topic, partitions=[asked])],
        )
    )
    assert isinstance(reply, AlterPartitionReassignmentsResponse)
    (result,) = reply.responses[0].partitions
    return result.error_code, result.error_message


DONE = (ErrorCode.NONE, None)

Shown = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def shown(cluster: InMemoryController) -> Shown:
    """Return replicas, adding, removing and ISR."""
    state = cluster.state("t")
    return state.replicas, state.adding, state.removing, tuple(sorted(state.isr))


def ongoing(
    cluster: InMemoryController, *asked: tuple[str, int]
) -> list[tuple[str, int, list[int]]]:
    request = ListPartitionReassignmentsRequest(
        topics=[
            ListPartitionReassignmentsTopics(name=name, partition_indexes=[index])
            for name, index in asked
        ]
        or None
    )
    reply = cluster.forward(request)
    assert isinstance(reply, ListPartitionReassignmentsResponse)
    return [
        (topic.name, row.partition_index, row.replicas)
        for topic in reply.topics
        for row in topic.partitions
    ]


def test_new_replicas_are_members_at_once_and_the_old_go_when_they_are_in_sync(
    cluster: InMemoryController,
) -> None:
    assert reassign(cluster, [4, 5, 6]) == DONE
    assert shown(cluster) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3), (1, 2, 3))
    assert cluster.state("t").leader == 1
    assert ongoing(cluster) == ongoing(cluster, ("t", 0)) == [("t", 0, [4, 5, 6, 1, 2, 3])]

    cluster.alter_isr("t", 0, 1, 2, 3, 4, 5)
    assert shown(cluster) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3), (1, 2, 3, 4, 5))

    answer = cluster.alter_isr("t", 0, 1, 2, 3, 4, 5, 6)
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert shown(cluster) == ((4, 5, 6), (), (), (4, 5, 6))
    assert cluster.state("t").leader == 4
    assert ongoing(cluster) == []


def test_a_leader_that_stays_leads_on_in_a_new_epoch(cluster: InMemoryController) -> None:
    """Kafka: the leader epoch rises when replicas are taken out."""
    reassign(cluster, [1, 2, 4])
    epoch = cluster.state("t").leader_epoch

    answer = cluster.alter_isr("t", 0, 1, 2, 3, 4)

    assert (answer.leader_id, answer.leader_epoch) == (1, epoch + 1)
    assert shown(cluster) == ((1, 2, 4), (), (), (1, 2, 4))


def test_an_isr_that_does_not_hold_all_that_come_ends_nothing(cluster: InMemoryController) -> None:
    reassign(cluster, [1, 4, 5])
    cluster.alter_isr("t", 0, 1, 4)
    assert shown(cluster) == ((1, 4, 5, 2, 3), (4, 5), (2, 3), (1, 4))

    cluster.alter_isr("t", 0, 1, 4, 5)
    assert shown(cluster) == ((1, 4, 5), (), (), (1, 4, 5))


def test_another_order_or_fewer_replicas_is_a_complete_reassignment_at_once(
    cluster: InMemoryController,
) -> None:
    assert reassign(cluster, [3, 1, 2]) == DONE
    assert shown(cluster) == ((3, 1, 2), (), (), (1, 2, 3))
    assert cluster.state("t").leader == 1, "the order sets the preferred leader only"

    assert reassign(cluster, [3, 2]) == DONE
    assert shown(cluster) == ((3, 2), (), (), (2, 3))
    assert cluster.state("t").leader == 3


def test_fewer_replicas_wait_until_all_that_stay_are_in_sync(cluster: InMemoryController) -> None:
    cluster.alter_isr("t", 0, 1, 2)

    reassign(cluster, [2, 3])
    assert shown(cluster) == ((2, 3, 1), (), (1,), (1, 2))

    cluster.alter_isr("t", 0, 1, 2, 3)
    assert shown(cluster) == ((2, 3), (), (), (2, 3))


def test_a_cancelled_reassignment_leaves_what_was_before(cluster: InMemoryController) -> None:
    reassign(cluster, [1, 4, 5])
    cluster.alter_isr("t", 0, 1, 2, 3, 4)

    assert reassign(cluster, None) == DONE
    assert set(cluster.state("t").replicas) == {1, 2, 3}
    assert shown(cluster)[1:] == ((), (), (1, 2, 3))


def test_a_second_reassignment_replaces_the_first_and_cancels_to_before_both(
    cluster: InMemoryController,
) -> None:
    reassign(cluster, [1, 2, 4])
    assert reassign(cluster, [1, 2, 5]) == DONE
    assert shown(cluster) == ((1, 2, 5, 3, 4), (4, 5), (3, 4), (1, 2, 3))

    reassign(cluster, None)
    assert set(cluster.state("t").replicas) == {1, 2, 3}

    reassign(cluster, [1, 2, 4])
    reassign(cluster, [1, 2, 5])
    cluster.alter_isr("t", 0, 1, 2, 3, 5)
    assert shown(cluster) == ((1, 2, 5), (), (), (1, 2, 5))


def test_back_to_where_it_was_is_done_at_once(cluster: InMemoryController) -> None:
    reassign(cluster, [1, 2, 4])
    reassign(cluster, [1, 2, 3])
    assert shown(cluster) == ((1, 2, 3), (), (), (1, 2, 3))


def test_a_new_replica_lies_in_the_only_directory_or_where_its_broker_chooses() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2)
    cluster.register(3, directories=2)
    cluster.heartbeat(3)
    create(cluster, "t", 1)

    reassign(cluster, [2, 3, 1])

    state = cluster.state("t")
    assert state.directory_of(state.replicas[0]) == directory_id(2)
    assert state.directory_of(state.replicas[1]) == UNASSIGNED
    assert state.directory_of(state.replicas[2]) == directory_id(1)


@pytest.mark.parametrize(
    ("replicas", "code", "said"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 1 more than once"),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker is registered"),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ""),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(
    cluster: InMemoryController, replicas: list[int] | None, code: ErrorCode, said: str
) -> None:
    before = cluster.state("t")
    found, message = reassign(cluster, replicas)
    assert found == code
    assert message is not None
    assert said in message
    assert cluster.state("t") == before


def test_a_cordoned_broker_gets_no_new_replica_and_keeps_those_that_it_has(
    cluster: InMemoryController,
) -> None:
    for broker in (1, 5):
        cluster.heartbeat(broker, cordoned_log_dirs=(directory_id(broker),))
    before = cluster.state("t")
    assert reassign(cluster, [1, 2, 5]) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 5, but all its log directories are "
        "cordoned.",
    )
    assert cluster.state("t") == before
    assert reassign(cluster, [1, 2, 4])[0] == ErrorCode.NONE


def test_what_is_not_there_cannot_be_reassigned(cluster: InMemoryController) -> None:
    assert reassign(cluster, [1], topic="none") == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "Unable to find a topic named none.",
    )
    assert reassign(cluster, [1], partition=7) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "Unable to find partition t:7.",
    )
    assert ongoing(cluster, ("none", 0), ("t", 7)) == []


def test_the_count_of_replicas_may_be_held(cluster: InMemoryController) -> None:
    """KIP-860: `allow.replication.factor.change` false; a reassignment under way counts as done."""
    refused = ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [1, 2], may_resize=False)[0] == refused
    assert reassign(cluster, [4, 5, 6], may_resize=False) == DONE
    assert reassign(cluster, [4, 5, 6, 1], may_resize=False)[0] == refused
    assert reassign(cluster, [4, 5, 1], may_resize=False) == DONE


def test_a_cancel_that_would_lose_records_is_refused(cluster: InMemoryController) -> None:
    reassign(cluster, [4, 5])
    cluster.alter_isr("t", 0, 1, 2, 3, 4)
    cluster.kill(1, 2, 3)
    assert shown(cluster)[3] == (4,)

    code, message = reassign(cluster, None)

    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message is not None
    assert "unclean leader election" in message
    assert cluster.state("t").leader == 4


def test_a_new_replica_that_dies_is_waited_for(cluster: InMemoryController) -> None:
    reassign(cluster, [4, 5, 6])
    cluster.alter_isr("t", 0, 1, 2, 3, 4, 5)
    cluster.kill(6)
    assert shown(cluster)[:3] == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))

    cluster.kill(1)
    assert cluster.state("t").leader in (2, 3, 4, 5)
    cluster.start(6)
    state = cluster.state("t")
    cluster.alter_isr("t", 0, *state.isr, 6)
    assert shown(cluster) == ((4, 5, 6), (), (), (4, 5, 6))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reassign"), st.permutations(BROKERS), st.integers(1, 4)),
        st.tuples(st.sampled_from(["kill", "start", "join"]), st.sampled_from(BROKERS)),
        st.tuples(st.just("cancel")),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_whatever_is_moved_while_brokers_come_and_go_stays_whole(
    steps: list[Any],
) -> None:
    """The fold refuses any state that breaks the image; and no leader may lack records.

    `holders` is the obvious model: with two in sync more is acknowledged, and only they hold it.
    """
    cluster = InMemoryController(min_insync_replicas=2)
    cluster.start(*BROKERS)
    create(cluster, "t", 1, 2, 3)
    holders = {1, 2, 3}
    for step in steps:
        alive = [one for one in BROKERS if cluster.image.is_active(NodeId(one))]
        state = cluster.state("t")
        match step:
            case ("reassign", [*order], int(count)):
                reassign(cluster, order[:count])
            case ("cancel",):
                reassign(cluster, None)
            case ("kill", int(broker)) if broker in alive:
                cluster.kill(broker)
            case ("start", int(broker)) if broker not in alive:
                cluster.register(
                    broker, incarnation=cluster.next_offset, previous_epoch=_epoch(cluster, broker)
                )
                cluster.heartbeat(broker)
            case ("join", int(broker)) if (
                broker in alive
                and broker in state.replicas
                and broker not in state.isr
                and state.leader != NO_NODE
            ):
                holders.add(broker)
                cluster.alter_isr("t", 0, *state.isr, broker)
        state = cluster.state("t")
        assert state.leader == NO_NODE or state.leader in holders
        assert set(state.isr) | set(state.elr) <= holders
        assert set(state.adding) | set(state.removing) <= set(state.replicas)
        if len(state.isr) >= min(2, len(state.replicas)):
            holders = set(state.isr)


def _epoch(cluster: InMemoryController, broker: int) -> int:
    return cluster.image.brokers[NodeId(broker)].epoch


# Hosts with several brokers.


def test_replicas_are_not_moved_to_one_host_if_there_are_enough() -> None:
    cluster = InMemoryController()
    for broker, host in ((1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c")):
        cluster.register(broker, host=host)
        cluster.heartbeat(broker)
    create(cluster, "t", 1, 3)

    assert reassign(cluster, [2, 3]) == DONE
    code, message = reassign(cluster, [3, 4])
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message is not None
    assert "brokers 3 and 4, which are on one host, b" in message
    assert reassign(cluster, [1, 3, 5]) == DONE
    # Four replicas cannot be on three hosts without two of them sharing one.
    assert reassign(cluster, [1, 2, 3, 5]) == DONE

    create(cluster, "u", 1, 2)
    assert cluster.image.topic("u") is None


def test_a_partition_whose_replicas_share_a_host_may_still_move() -> None:
    cluster = InMemoryController()
    for broker in (1, 2):
        cluster.register(broker, host="a")
        cluster.heartbeat(broker)
    create(cluster, "t", 1, 2)
    for broker, host in ((3, "b"), (4, "b"), (5, "c")):
        cluster.register(broker, host=host)
        cluster.heartbeat(broker)

    assert reassign(cluster, [3, 4]) == DONE
    assert reassign(cluster, [3, 5]) == DONE
    assert reassign(cluster, None) == DONE
