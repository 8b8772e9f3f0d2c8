"""What becomes of partitions when brokers leave and come: batched elections.

One event, one batch: everything a broker led moves in the same records that fence it.  The index
`partitions_by_broker` makes the cost follow what failed, not what exists.
"""

from collections.abc import Collection, Iterator
from uuid import UUID

from ottla.controller.decision import Decision
from ottla.controller.partition_change import Election, Rules, change_partition
from ottla.controller.settings_in_force import (
    allows_unclean_election,
    is_elr_enabled,
    min_insync_replicas,
)
from ottla.metadata import directories
from ottla.metadata.image import MetadataImage, PartitionState, Topic
from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_NODE, NodeId, TopicIdPartition
from ottla.model.settings.controller import ControllerConfig
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1

PREFERRED_ELECTIONS_MAX = 1_000
"""Leaders given back in one run: more would stall the clients of a whole cluster at once."""


def rules_of(
    image: MetadataImage,
    config: ControllerConfig,
    topic: Topic,
    state: PartitionState,
    *,
    coming: NodeId = NO_NODE,
    leaving: Collection[NodeId] = (),
) -> Rules:
    """Return the rules of one partition, with brokers that come or leave in this same batch."""

    def can_lead(replica: NodeId) -> bool:
        if replica in leaving or not (replica == coming or image.is_active(replica)):
            return False
        directory = state.directory_of(replica)
        if directories.is_reserved(directory):
            return directory != directories.LOST
        return directory in image.brokers[replica].log_dirs

    return Rules(
        can_lead=can_lead,
        min_insync_replicas=min_insync_replicas(image, config, topic.name),
        is_elr_enabled=is_elr_enabled(image),
        allows_unclean=allows_unclean_election(image, config, topic.name),
    )


def broker_leaves(
    image: MetadataImage,
    config: ControllerConfig,
    broker: NodeId,
    *,
    is_unclean: bool = False,
    only_directories: Collection[UUID] | None = None,
) -> Iterator[Record]:
    """Yield the changes that take a broker out of every ISR and move what it leads.

    `is_unclean`: it may have lost what it had, so it leaves the ELRs too.  `only_directories`:
    only these of its directories are gone.
    """
    for partition, state in image.partitions_of(broker):
        if broker not in state.isr and not (is_unclean and broker in state.elr):
            continue
        if only_directories is not None and state.directory_of(broker) not in only_directories:
            continue
        topic = image.topics[partition.topic_id]
        record = change_partition(
            partition,
            state,
            rules_of(image, config, topic, state, leaving=(broker,)),
            isr=tuple(one for one in state.isr if one != broker),
            uncleanly_stopped=broker if is_unclean else NO_NODE,
        )
        if record is not None:
            yield record


def broker_comes(
    image: MetadataImage, config: ControllerConfig, broker: NodeId
) -> Iterator[Record]:
    """Yield the elections of partitions that nobody leads and that the broker holds."""
    for partition, state in image.partitions_of(broker):
        if state.leader == NO_NODE:
            topic = image.topics[partition.topic_id]
            rules = rules_of(image, config, topic, state, coming=broker)
            record = change_partition(partition, state, rules)
            if record is not None:
                yield record


def rebalance(image: MetadataImage, config: ControllerConfig) -> tuple[Record, ...]:
    """Return what gives leadership back to preferred replicas, a bounded number at a time."""
    records: list[Record] = []
    for topic, partition, state in _partitions(image):
        if state.leader == state.preferred_leader or state.preferred_leader not in state.isr:
            continue
        record = change_partition(
            partition,
            state,
            rules_of(image, config, topic, state),
            election=Election.PREFERRED,
        )
        if record is not None:
            records.append(record)
        if len(records) == PREFERRED_ELECTIONS_MAX:
            break
    return tuple(records)


def elect_where_unclean_is_allowed(
    image: MetadataImage, config: ControllerConfig
) -> tuple[Record, ...]:
    """Return elections of leaderless partitions whose topic has come to allow unclean ones."""
    records = []
    for topic, partition, state in _partitions(image):
        if state.leader == NO_NODE:
            rules = rules_of(image, config, topic, state)
            record = change_partition(partition, state, rules) if rules.allows_unclean else None
            if record is not None:
                records.append(record)
    return tuple(records)


def elect_leaders(
    image: MetadataImage, config: ControllerConfig, request: ElectLeadersRequest
) -> Decision[ElectLeadersResponse]:
    """Hold the elections somebody asked for; None as topics means all that need one."""
    if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    is_everything = request.topic_partitions is None
    asked = _everything(image) if request.topic_partitions is None else request.topic_partitions
    records: list[Record] = []
    results = []
    for topic in asked:
        outcomes = []
        for partition_id in topic.partitions:
            record, outcome = _elect_one(
                image, config, topic.topic, partition_id, request.election_type
            )
            if record is not None:
                records.append(record)
            if not (is_everything and outcome.error_code == ErrorCode.ELECTION_NOT_NEEDED):
                outcomes.append(outcome)
        if outcomes:
            results.append(ReplicaElectionResult(topic=topic.topic, partition_result=outcomes))
    return Decision(tuple(records), ElectLeadersResponse(replica_election_results=results))


def _elect_one(
    image: MetadataImage,
    config: ControllerConfig,
    topic_name: str,
    partition_id: int,
    election_type: int,
) -> tuple[Record | None, PartitionResult]:
    def outcome(code: ErrorCode, message: str | None = None) -> PartitionResult:
        return PartitionResult(partition_id=partition_id, error_code=code, error_message=message)

    topic = image.topic(topic_name)
    state = None if topic is None else topic.partitions.get(partition_id)
    if topic is None or state is None:
        return None, outcome(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"No such partition as {topic_name}-{partition_id}",
        )
    is_preferred = election_type == PREFERRED_ELECTION
    is_settled = state.leader == state.preferred_leader if is_preferred else state.leader != NO_NODE
    if is_settled:
        return None, outcome(ErrorCode.ELECTION_NOT_NEEDED)
    record = change_partition(
        TopicIdPartition(topic.id, partition_id),
        state,
        rules_of(image, config, topic, state),
        election=Election.PREFERRED if is_preferred else Election.UNCLEAN,
    )
    if record is None or not record.partition_change.HasField("leader"):
        code = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if is_preferred
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
        return None, outcome(code)
    return record, outcome(ErrorCode.NONE)


def _partitions(
    image: MetadataImage,
) -> Iterator[tuple[Topic, TopicIdPartition, PartitionState]]:
    for topic in image.topics.values():
        for partition_id, state in topic.partitions.items():
            yield topic, TopicIdPartition(topic.id, partition_id), state


def _everything(image: MetadataImage) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic=name, partitions=list(image.topics[topic_id].partitions))
        for name, topic_id in image.topic_ids.items()
    ]
