"""Changes of partitions by their leaders and brokers: ISR and directories.

AlterPartition is a compare-and-set on the leader epoch and the partition epoch.  A leader that was
deposed, or that refers to an older state, changes nothing.
"""

from ottla.controller.broker_epochs import registered
from ottla.controller.decision import Decision, Draft, decided, request_uuid
from ottla.controller.replication.elections import TopicRules, brokers_unavailable
from ottla.controller.replication.partition_change import change_partition
from ottla.metadata import topics_fold
from ottla.metadata.directories import is_reserved
from ottla.metadata.image import MetadataImage, PartitionState, RecoveryState, Topic
from ottla.metadata.records import Record, partition_change_record
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, TopicIdPartition
from ottla.model.settings.controller import ControllerConfig
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2

UNKNOWN_BROKER_EPOCH = -1
"""Broker epoch that a leader sends in AlterPartition if it does not know the epoch of a follower.
The controller does not check this value."""


def alter_partition(
    image: MetadataImage, config: ControllerConfig, request: pb.AlterPartitionRequest
) -> Decision[pb.AlterPartitionResponse]:
    """Return the decision on the ISR changes that a partition leader proposes, made separately for
    each partition."""
    registered(image, request.broker_id, request.broker_epoch)
    leader = NodeId(request.broker_id)
    rules = TopicRules(image, config)
    records: list[Record] = []
    seen: set[tuple[bytes, int]] = set()
    reply = pb.AlterPartitionResponse()
    for asked in request.topics:
        result = reply.topics.add(topic_id=asked.topic_id)
        topic = image.topics.get(request_uuid(asked.topic_id))
        for proposal in asked.partitions:
            at = (asked.topic_id, proposal.partition_id)
            if at in seen:
                # The first change of this partition has replaced the state to which the second one
                # refers.
                result.partitions.add(
                    partition_id=proposal.partition_id, error_code=ErrorCode.INVALID_REQUEST
                )
                continue
            seen.add(at)
            if topic is None:
                result.partitions.add(
                    partition_id=proposal.partition_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                )
                continue
            state = topic.partitions.get(proposal.partition_id)
            error = _fault_of(image, leader, state, proposal)
            if error is not None or state is None:
                result.partitions.add(partition_id=proposal.partition_id, error_code=error or 0)
                continue
            record, outcome = _alter(rules, topic, state, proposal)
            if record is not None:
                records.append(record)
            result.partitions.append(outcome)
    return decided(image, records, reply)


def _fault_of(
    image: MetadataImage,
    sender: NodeId,
    state: PartitionState | None,
    proposal: pb.AlterPartitionProposal,
) -> ErrorCode | None:
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if (
        proposal.leader_epoch > state.leader_epoch
        or proposal.partition_epoch > state.partition_epoch
    ):
        # The leader has applied records that this controller does not have, so another controller
        # wrote them.
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != state.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [NodeId(member.broker_id) for member in proposal.new_isr]
    if len(set(isr)) != len(isr) or not set(isr) <= set(state.replicas) or sender not in isr:
        return ErrorCode.INVALID_REQUEST
    recovery_state = int(proposal.leader_recovery_state)
    if recovery_state not in tuple(RecoveryState):
        return ErrorCode.INVALID_REQUEST
    if recovery_state == RecoveryState.RECOVERING and (
        len(isr) > 1 or state.recovery_state is RecoveryState.RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, member) for member in proposal.new_isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def _is_eligible(image: MetadataImage, member: pb.BrokerState) -> bool:
    broker = image.brokers.get(NodeId(member.broker_id))
    if broker is None or not broker.is_active:
        return False
    return member.broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)


def _alter(
    rules: TopicRules,
    topic: Topic,
    state: PartitionState,
    proposal: pb.AlterPartitionProposal,
) -> tuple[Record | None, pb.AlterPartitionResult]:
    record = change_partition(
        TopicIdPartition(topic.id, proposal.partition_id),
        state,
        rules.of(topic, state),
        isr=tuple(NodeId(member.broker_id) for member in proposal.new_isr),
        recovery_state=RecoveryState(proposal.leader_recovery_state),
    )
    after = state if record is None else topics_fold.merge(state, record.partition_change)
    if after.leader != state.leader:
        code = ErrorCode.NEW_LEADER_ELECTED
        return record, pb.AlterPartitionResult(partition_id=proposal.partition_id, error_code=code)
    return record, pb.AlterPartitionResult(
        partition_id=proposal.partition_id,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        leader_recovery_state=metadata_pb2.LeaderRecoveryState.Name(after.recovery_state),
        partition_epoch=after.partition_epoch,
    )


def assign_replicas_to_dirs(
    image: MetadataImage, config: ControllerConfig, request: pb.AssignReplicasToDirsRequest
) -> Decision[pb.AssignReplicasToDirsResponse]:
    """Return the decision that records the log directories in which a broker stores its replicas
    (KIP-858).

    A replica in an offline directory is removed from the ISR at once.
    """
    broker = registered(image, request.broker_id, request.broker_epoch)
    records: list[Record] = []
    offline = set()
    reply = pb.AssignReplicasToDirsResponse()
    for directory in request.directories:
        directory_id = request_uuid(directory.directory_id)
        if directory_id not in broker.log_dirs and not is_reserved(directory_id):
            offline.add(directory_id)
        by_directory = reply.directories.add(directory_id=directory.directory_id)
        for asked in directory.topics:
            by_topic = by_directory.topics.add(topic_id=asked.topic_id)
            topic = image.topics.get(request_uuid(asked.topic_id))
            for partition_id in asked.partitions:
                state = None if topic is None else topic.partitions.get(partition_id)
                error = _misplaced(topic, state, broker.id)
                by_topic.partitions.add(partition_id=partition_id, error_code=error)
                if topic is None or state is None or error:
                    continue
                directories = tuple(
                    directory_id if replica == broker.id else old
                    for replica, old in zip(state.replicas, state.directories, strict=True)
                )
                if directories != state.directories:
                    records.append(
                        partition_change_record(topic.id, partition_id, directories=directories)
                    )
    draft = Draft(image)
    draft.add(records)
    if offline:
        draft.add(brokers_unavailable(draft.image, config, (broker.id,), only_directories=offline))
    return draft.decision(reply)


def _misplaced(topic: Topic | None, state: PartitionState | None, broker: NodeId) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker not in state.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE
