"""Outages of whole clusters, each of another kind, after which no record is lost."""

import pytest

from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.image import RecoveryState
from ottla.model.ids import NO_NODE, NodeId
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ALL = (ONE, TWO, THREE)


@pytest.fixture
def cluster() -> InMemoryController:
    """Three brokers with one partition on all, min.insync.replicas 2."""
    cluster = InMemoryController(min_insync_replicas=2)
    cluster.start(*ALL)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(ALL))
    topic = CreatableTopic(
        name="a", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    cluster.forward(CreateTopicsRequest(topics=[topic]))
    return cluster


def shut_down(cluster: InMemoryController, broker: int) -> int:
    """Stop a broker in order and return the epoch that it writes down as its last."""
    for _ in range(3):
        if cluster.heartbeat(broker, want_shut_down=True).should_shut_down:
            return cluster.image.brokers[NodeId(broker)].epoch
        for other in ALL:
            if cluster.image.is_active(other):
                cluster.heartbeat(other)
    raise AssertionError("the shutdown was not granted")


def come_back(cluster: InMemoryController, broker: int, *, previous_epoch: int = -1) -> None:
    cluster.register(broker, incarnation=2, previous_epoch=previous_epoch)
    cluster.heartbeat(broker)


def test_the_last_in_sync_go_down_in_order_and_those_eligible_lead_cleanly(
    cluster: InMemoryController,
) -> None:
    """KIP-966: a replica that left the ISR below min.insync.replicas has all committed records."""
    epochs = {broker: shut_down(cluster, broker) for broker in ALL}
    down = cluster.state("a")

    come_back(cluster, 1, previous_epoch=epochs[ONE])
    not_yet = cluster.state("a")
    come_back(cluster, 2, previous_epoch=epochs[TWO])
    up = cluster.state("a")
    come_back(cluster, 3, previous_epoch=epochs[THREE])
    cluster.alter_isr("a", 0, 2, 1, 3)
    whole = cluster.state("a")

    assert (down.leader, down.isr, down.elr) == (NO_NODE, (), (TWO, THREE))
    assert down.last_known_elr == (THREE,)
    # Broker 1 left while two were in sync: it may lack what they committed without it.
    assert not_yet.leader == NO_NODE
    assert (up.leader, up.isr, up.elr) == (TWO, (TWO,), (THREE,))
    assert up.recovery_state is RecoveryState.RECOVERED
    assert (whole.isr, whole.elr, whole.last_known_elr) == ((TWO, ONE, THREE), (), ())


@pytest.mark.parametrize("first", [2, 3])
def test_either_of_those_eligible_may_come_back_first(
    cluster: InMemoryController, first: int
) -> None:
    epochs = {broker: shut_down(cluster, broker) for broker in ALL}

    come_back(cluster, first, previous_epoch=epochs[NodeId(first)])

    assert cluster.state("a").leader == first
    assert cluster.state("a").recovery_state is RecoveryState.RECOVERED


def test_all_killed_at_once_the_last_known_leader_leads_and_says_so(
    cluster: InMemoryController,
) -> None:
    cluster.kill(*ALL)
    down = cluster.state("a")
    for broker in (TWO, THREE):
        come_back(cluster, broker)
    waiting = cluster.state("a")
    come_back(cluster, 1)
    up = cluster.state("a")
    cluster.alter_isr("a", 0, 1)
    confirmed = cluster.state("a")

    assert (down.leader, down.isr, down.elr) == (NO_NODE, (), ALL)
    # Not eligible after a crash, and not the one who led.
    assert (waiting.leader, waiting.elr, waiting.last_known_elr) == (NO_NODE, (ONE,), (ONE,))
    assert (up.leader, up.isr, up.recovery_state) == (ONE, (ONE,), RecoveryState.RECOVERING)
    assert confirmed.recovery_state is RecoveryState.RECOVERED


def test_after_kills_one_by_one_the_last_leader_leads_again(cluster: InMemoryController) -> None:
    for broker in ALL:
        cluster.kill(broker)
    for broker in ALL:
        come_back(cluster, broker)

    state = cluster.state("a")
    assert (state.leader, state.isr) == (THREE, (THREE,))
    assert state.recovery_state is RecoveryState.RECOVERING


def test_all_killed_but_one_restarted_without_a_crash_leads_cleanly(
    cluster: InMemoryController,
) -> None:
    """SIGSTOP and SIGCONT: the process is the same and has lost nothing."""
    cluster.kill(*ALL)
    for broker in (ONE, THREE):
        come_back(cluster, broker)

    cluster.heartbeat(2)

    state = cluster.state("a")
    assert (state.leader, state.isr, state.elr) == (TWO, (TWO,), ())
    assert state.recovery_state is RecoveryState.RECOVERED
