"""Reassignment of partitions to other brokers while they are in use (KIP-455).

A reassignment first adds the new replicas to the old ones. The ISR change that adds the last new
replica completes the reassignment (`partition_change`). A second reassignment replaces the first.
If a reassignment is cancelled, the original replicas are restored.
"""

from collections.abc import Sequence

from ottla.controller.decision import Context, Decision, decided
from ottla.controller.replication import balance_plan
from ottla.controller.replication.assignments import check_hosts, check_manual, directory_for
from ottla.controller.replication.elections import TopicRules
from ottla.controller.replication.partition_change import Assignment, Election, change_partition
from ottla.controller.settings_in_force import allows_unclean_election
from ottla.metadata.image import MetadataImage, PartitionState, Topic
from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import Explanations
from ottla.model.ids import NodeId, TopicIdPartition, TopicPartition
from ottla.model.settings.controller import ControllerConfig
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from ottla.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from ottla.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_partition_reassignments(
    image: MetadataImage, context: Context, request: AlterPartitionReassignmentsRequest
) -> Decision[AlterPartitionReassignmentsResponse]:
    """Return the decision that starts, replaces or cancels reassignments, separately for each
    partition.

    A reassignment is cancelled if the partition's replicas in the request are null.  A partition
    that the request alters is removed from the stored balance plan.
    """
    may_resize = request.allow_replication_factor_change
    config = context.config
    rules = TopicRules(image, config)
    records: dict[TopicIdPartition, Record] = {}
    responses = []
    explanations = Explanations()
    for asked_topic in request.topics:
        results = []
        for asked in asked_topic.partitions:
            result = ReassignablePartitionResponse(
                partition_index=asked.partition_index, error_message=None
            )
            try:
                topic, state = _find(image, asked_topic.name, asked.partition_index)
                at = TopicIdPartition(topic.id, asked.partition_index)
                if at in records:
                    raise RefusedError(
                        ErrorCode.INVALID_REQUEST, "Each partition must appear at most once."
                    )
                record = _decided(image, config, rules, topic, state, asked, may_resize=may_resize)
            except RefusedError as refusal:
                result.error_code = refusal.code
                result.error_message = explanations.of(refusal.message)
            else:
                if record is not None:
                    records[at] = record
            results.append(result)
        responses.append(ReassignableTopicResponse(name=asked_topic.name, partitions=results))
    names = {topic_id: image.topics[topic_id].name for topic_id, _ in records}
    altered = [TopicPartition(names[one.topic_id], one.partition) for one in records]
    return decided(
        image,
        [*records.values(), *balance_plan.without(image, altered)],
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_resize, error_message=None, responses=responses
        ),
    )


def _find(image: MetadataImage, name: str, index: int) -> tuple[Topic, PartitionState]:
    topic = image.topic(name)
    if topic is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
    state = topic.partitions.get(index)
    if state is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
        )
    return topic, state


def _decided(
    image: MetadataImage,
    config: ControllerConfig,
    rules: TopicRules,
    topic: Topic,
    state: PartitionState,
    asked: ReassignablePartition,
    *,
    may_resize: bool,
) -> Record | None:
    at = TopicIdPartition(topic.id, asked.partition_index)
    now = Assignment.of(state)
    if asked.replicas is None:
        return cancelled(image, config, rules, topic, at, state)
    replicas = tuple(map(NodeId, asked.replicas))
    check_manual(image, replicas, None, before=state.replicas)
    check_hosts(image, replicas, before=set(state.replicas).difference(state.removing))
    was_count = len(set(state.replicas).difference(state.removing))
    if not may_resize and len(replicas) != was_count:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {was_count} to {len(replicas)}",
        )
    target = towards(image, now, replicas)
    merged = with_assignment(state, target)
    return change_partition(at, state, rules.of(topic, merged), assignment=target)


def towards(image: MetadataImage, now: Assignment, replicas: tuple[NodeId, ...]) -> Assignment:
    """Return the assignment that reassigns a partition from its present replicas to the requested
    replicas."""
    before = set(now.replicas).difference(now.adding)
    removing = tuple(sorted(set(now.replicas).difference(replicas)))
    merged = (*replicas, *removing)
    known = dict(zip(now.replicas, now.directories, strict=True))
    return Assignment(
        replicas=merged,
        directories=tuple(
            known[one] if one in known else directory_for(image, one) for one in merged
        ),
        adding=tuple(sorted(set(merged).difference(before))),
        removing=removing,
    )


def cancelled(
    image: MetadataImage,
    config: ControllerConfig,
    rules: TopicRules,
    topic: Topic,
    at: TopicIdPartition,
    state: PartitionState,
) -> Record | None:
    """Return the metadata record that cancels a reassignment and restores the original replicas.
    Returns None if nothing changes.

    Raises RefusedError if the partition is not being reassigned, or if the cancellation needs an
    unclean election.
    """
    now = Assignment.of(state)
    if not now.is_changing:
        raise RefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    before = now.without(now.adding)
    if not before.replicas:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Invalid replica assignment: addingReplicas contains all replicas.",
        )
    isr = tuple(one for one in state.isr if one in before.replicas)
    if not isr and not allows_unclean_election(image, config, topic.name):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{at.partition} because it "
            "would require an unclean leader election.",
        )
    return change_partition(
        at,
        state,
        rules.of(topic, with_assignment(state, before)),
        isr=isr,
        assignment=before,
        election=Election.IF_NEEDED if isr else Election.UNCLEAN,
    )


def with_assignment(state: PartitionState, target: Assignment) -> PartitionState:
    """Return a partition's state with its replicas replaced by the replicas of an assignment."""
    return PartitionState(
        replicas=target.replicas, directories=target.directories, isr=state.isr, leader=state.leader
    )


def list_partition_reassignments(
    image: MetadataImage, context: Context, request: ListPartitionReassignmentsRequest
) -> Decision[ListPartitionReassignmentsResponse]:
    """Return the decision on a ListPartitionReassignments request, whose reply lists the
    reassignments in progress. If the topics of the request are null, all are listed."""
    wanted: Sequence[tuple[str, Sequence[int] | None]]
    if request.topics is None:
        wanted = [(name, None) for name in sorted(image.topic_ids)]
    else:
        asked: dict[str, dict[int, None]] = {}
        for one in request.topics:
            asked.setdefault(one.name, {}).update(dict.fromkeys(one.partition_indexes))
        wanted = [(name, tuple(indexes)) for name, indexes in asked.items()]
    topics = []
    for name, indexes in wanted:
        topic = image.topic(name)
        found = [] if topic is None else list(_ongoing(topic, indexes))
        if found:
            topics.append(OngoingTopicReassignment(name=name, partitions=found))
    answer = ListPartitionReassignmentsResponse(error_message=None, topics=topics)
    return decided(image, (), answer)


def _ongoing(topic: Topic, indexes: Sequence[int] | None) -> Sequence[OngoingPartitionReassignment]:
    chosen = topic.partitions if indexes is None else indexes
    return [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(state.replicas),
            adding_replicas=list(state.adding),
            removing_replicas=list(state.removing),
        )
        for index in chosen
        if (state := topic.partitions.get(index)) is not None and (state.adding or state.removing)
    ]
