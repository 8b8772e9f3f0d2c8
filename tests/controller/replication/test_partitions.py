"""AlterPartition: the compare-and-set between a partition's leader and the controller."""

from collections.abc import Callable
from uuid import UUID

import pytest

from ottla.controller.replication.partitions import alter_partition
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
Proposal = pb.AlterPartitionProposal


@pytest.fixture
def cluster() -> InMemoryController:
    cluster = InMemoryController(min_insync_replicas=2)
    cluster.start(1, 2, 3)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])
    topic = CreatableTopic(
        name="a", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    cluster.forward(CreateTopicsRequest(topics=[topic]))
    return cluster


def propose(
    cluster: InMemoryController,
    change: Callable[[Proposal], object] = lambda proposal: None,
    *,
    isr: tuple[int, ...] = (1, 2),
    sender: int = 1,
    topic_id: bytes | None = None,
) -> pb.AlterPartitionResult:
    topic = cluster.image.topic("a")
    assert topic is not None
    state = topic.partitions[0]
    proposal = Proposal(
        partition_id=0,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr=[pb.BrokerState(broker_id=one, broker_epoch=-1) for one in isr],
    )
    change(proposal)
    request = pb.AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=cluster.image.brokers[NodeId(sender)].epoch,
        topics=[pb.AlterPartitionTopic(topic_id=topic_id or topic.id.bytes, partitions=[proposal])],
    )
    reply = cluster.take(alter_partition(cluster.image, cluster.config, request))
    return reply.topics[0].partitions[0]


def test_a_smaller_isr_is_written_and_returned(cluster: InMemoryController) -> None:
    outcome = propose(cluster, isr=(1, 2))

    assert (outcome.error_code, outcome.partition_epoch, outcome.leader_epoch) == (0, 1, 0)
    assert (outcome.leader_id, list(outcome.isr)) == (1, [1, 2])
    assert cluster.state("a").isr == (ONE, TWO)


def test_an_unchanged_isr_is_returned_without_a_record(cluster: InMemoryController) -> None:
    outcome = propose(cluster, isr=(1, 2, 3))

    assert (outcome.error_code, outcome.partition_epoch) == (0, 0)


def test_an_isr_below_min_isr_keeps_the_others_eligible(cluster: InMemoryController) -> None:
    propose(cluster, isr=(1,))
    shrunk = cluster.state("a")
    propose(cluster, isr=(1, 3))

    assert (shrunk.isr, shrunk.elr) == ((ONE,), (TWO, THREE))
    assert (cluster.state("a").isr, cluster.state("a").elr) == ((ONE, THREE), ())


def raise_leader_epoch(proposal: Proposal) -> None:
    proposal.leader_epoch += 1


def raise_partition_epoch(proposal: Proposal) -> None:
    proposal.partition_epoch += 1


def lower_leader_epoch(proposal: Proposal) -> None:
    proposal.leader_epoch -= 1


def lower_partition_epoch(proposal: Proposal) -> None:
    proposal.partition_epoch -= 1


def name_another_partition(proposal: Proposal) -> None:
    proposal.partition_id = 7


def start_recovering(proposal: Proposal) -> None:
    proposal.leader_recovery_state = metadata_pb2.RECOVERING


def know_an_old_incarnation(proposal: Proposal) -> None:
    proposal.new_isr[1].broker_epoch = 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (raise_leader_epoch, ErrorCode.NOT_CONTROLLER),
        (raise_partition_epoch, ErrorCode.NOT_CONTROLLER),
        (lower_leader_epoch, ErrorCode.FENCED_LEADER_EPOCH),
        (lower_partition_epoch, ErrorCode.INVALID_UPDATE_VERSION),
        (name_another_partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (start_recovering, ErrorCode.INVALID_REQUEST),
        (know_an_old_incarnation, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_proposal_about_another_state_changes_nothing(
    cluster: InMemoryController, change: Callable[[Proposal], None], code: ErrorCode
) -> None:
    before = cluster.image

    assert propose(cluster, change).error_code == code
    assert cluster.image == before


@pytest.mark.parametrize(
    ("changes", "isr", "sender", "code"),
    [
        ((raise_leader_epoch, lower_partition_epoch), (1, 9), 2, ErrorCode.NOT_CONTROLLER),
        ((lower_leader_epoch, raise_partition_epoch), (1, 9), 2, ErrorCode.NOT_CONTROLLER),
        ((lower_leader_epoch, lower_partition_epoch), (1, 9), 2, ErrorCode.FENCED_LEADER_EPOCH),
        ((lower_partition_epoch,), (2, 3), 2, ErrorCode.INVALID_REQUEST),
        ((lower_partition_epoch,), (1, 9), 1, ErrorCode.INVALID_UPDATE_VERSION),
        ((know_an_old_incarnation,), (2, 3), 1, ErrorCode.INVALID_REQUEST),
        ((start_recovering, know_an_old_incarnation), (1, 2), 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_first_of_several_errors_in_kafkas_order_is_returned(
    cluster: InMemoryController,
    changes: tuple[Callable[[Proposal], None], ...],
    isr: tuple[int, ...],
    sender: int,
    code: ErrorCode,
) -> None:
    """ReplicationControlManager.validateAlterPartitionData."""

    def change(proposal: Proposal) -> None:
        for one in changes:
            one(proposal)

    assert propose(cluster, change, isr=isr, sender=sender).error_code == code


def test_more_than_one_in_sync_while_recovering_is_invalid(cluster: InMemoryController) -> None:
    for broker in (1, 2, 3):
        cluster.kill(broker)
        cluster.register(broker, incarnation=2)
    for broker in (1, 3):
        cluster.heartbeat(broker)

    outcome = propose(cluster, start_recovering, isr=(3, 1), sender=3)
    recovered = propose(cluster, isr=(3, 1), sender=3)

    assert outcome.error_code == ErrorCode.INVALID_REQUEST
    assert (recovered.error_code, list(recovered.isr)) == (0, [3, 1])


@pytest.mark.parametrize("isr", [(), (2, 3), (1, 1), (1, 9)])
def test_an_isr_that_cannot_be_is_invalid(
    cluster: InMemoryController, isr: tuple[int, ...]
) -> None:
    assert propose(cluster, isr=isr).error_code == ErrorCode.INVALID_REQUEST


def test_only_the_leader_proposes(cluster: InMemoryController) -> None:
    assert propose(cluster, sender=2).error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_that_is_gone_is_unknown_by_its_id(cluster: InMemoryController) -> None:
    outcome = propose(cluster, topic_id=UUID(int=77).bytes)

    assert outcome.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_fenced_broker_joins_no_isr(cluster: InMemoryController) -> None:
    cluster.kill(3)

    assert propose(cluster, isr=(1, 2, 3)).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_elected_out_of_sync_confirms_that_it_recovered(
    cluster: InMemoryController,
) -> None:
    for broker in (1, 2, 3):
        cluster.kill(broker)
        cluster.register(broker, incarnation=2)
    cluster.heartbeat(3)
    recovering = cluster.state("a")

    propose(cluster, start_recovering, isr=(3,), sender=3)
    confirmed = propose(cluster, isr=(3,), sender=3)

    assert (recovering.leader, recovering.recovery_state) == (THREE, 1)
    assert (confirmed.error_code, confirmed.leader_recovery_state) == (0, metadata_pb2.RECOVERED)
    assert cluster.state("a").recovery_state == 0


def test_a_leader_of_an_old_incarnation_is_refused_whole(cluster: InMemoryController) -> None:
    request = pb.AlterPartitionRequest(broker_id=1, broker_epoch=0)

    with pytest.raises(RefusedError) as caught:
        alter_partition(cluster.image, cluster.config, request)

    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_partition_named_twice_is_decided_once(cluster: InMemoryController) -> None:
    """Two changes of one state need not fit together: the log would not fold."""
    topic = cluster.image.topic("a")
    assert topic is not None
    state = topic.partitions[0]

    def proposal(*isr: int) -> Proposal:
        return Proposal(
            partition_id=0,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr=[pb.BrokerState(broker_id=one, broker_epoch=-1) for one in isr],
        )

    twice = [
        pb.AlterPartitionTopic(topic_id=topic.id.bytes, partitions=[proposal(1, 2)]),
        pb.AlterPartitionTopic(topic_id=topic.id.bytes, partitions=[proposal(1), proposal(1, 3)]),
    ]
    request = pb.AlterPartitionRequest(
        broker_id=1, broker_epoch=cluster.image.brokers[ONE].epoch, topics=twice
    )
    decision = alter_partition(cluster.image, cluster.config, request)
    reply = cluster.take(decision)

    assert len(decision.records) == 1
    assert cluster.state("a").isr == (ONE, TWO)
    codes = [one.error_code for topic in reply.topics for one in topic.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
