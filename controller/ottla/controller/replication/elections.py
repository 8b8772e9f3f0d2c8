"""Elections of many partitions in one decision, when brokers leave or return.

All changes of one event are one batch: the records that fence a broker also elect new leaders for
the partitions that it led. With the index `partitions_by_broker`, the cost depends on the number of
affected partitions, not on the size of the cluster.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from uuid import UUID

from ottla.controller.decision import Context, Decision, decided
from ottla.controller.replication.partition_change import Election, Rules, change_partition
from ottla.controller.settings_in_force import (
    allows_unclean_election,
    is_elr_enabled,
    min_insync_replicas,
)
from ottla.metadata import directories
from ottla.metadata.image import MetadataImage, PartitionState, Topic
from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import Explanations
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
"""Maximum number of partitions whose preferred leader is restored in one decision. A larger number
would interrupt clients of the whole cluster at once."""


class TopicRules:
    """Rules for partition changes when brokers leave or return: the settings, and the brokers that
    can lead. The settings of a topic are looked up once."""

    def __init__(
        self,
        image: MetadataImage,
        config: ControllerConfig,
        *,
        coming: NodeId = NO_NODE,
        leaving: Collection[NodeId] = (),
    ) -> None:
        self._image = image
        self._config = config
        self._is_elr_enabled = is_elr_enabled(image)
        self._active = {broker.id: broker for broker in image.brokers.values() if broker.is_active}
        if coming in image.brokers:
            self._active[coming] = image.brokers[coming]
        for broker in leaving:
            self._active.pop(broker, None)
        self._topic: Topic | None = None
        self._min_insync_replicas = 1
        self._allows_unclean = False

    def of(self, topic: Topic, state: PartitionState) -> Rules:
        """Return the rules (settings, and brokers that can lead) for changes of one partition of a
        topic."""
        if topic is not self._topic:
            self._topic = topic
            self._min_insync_replicas = min_insync_replicas(self._image, self._config, topic.name)
            self._allows_unclean = allows_unclean_election(self._image, self._config, topic.name)

        def can_lead(replica: NodeId) -> bool:
            broker = self._active.get(replica)
            if broker is None:
                return False
            directory = state.directory_of(replica)
            if directories.is_reserved(directory):
                return directory != directories.LOST
            return directory in broker.log_dirs

        return Rules(
            can_lead=can_lead,
            min_insync_replicas=self._min_insync_replicas,
            is_elr_enabled=self._is_elr_enabled,
            allows_unclean=self._allows_unclean,
        )


def brokers_unavailable(
    image: MetadataImage,
    config: ControllerConfig,
    leaving: Sequence[NodeId],
    *,
    is_unclean: bool = False,
    only_directories: Collection[UUID] | None = None,
) -> Iterator[Record]:
    """Yield the partition changes that remove brokers from every ISR and elect new leaders for the
    partitions that they lead.

    Brokers that leave together never become leader for each other. If `is_unclean`, they may have
    lost records, so they are also removed from the sets of eligible replicas (ELRs).
    `only_directories` contains the failed directories of the brokers; None stands for all
    directories.
    """
    rules = TopicRules(image, config, leaving=leaving)
    uncleanly_stopped = leaving if is_unclean else ()
    for partition, state in _partitions_of(image, leaving):
        gone = [
            broker
            for broker in leaving
            if (broker in state.isr or (is_unclean and broker in state.elr))
            and (only_directories is None or state.directory_of(broker) in only_directories)
        ]
        if not gone:
            continue
        record = change_partition(
            partition,
            state,
            rules.of(image.topics[partition.topic_id], state),
            isr=tuple(one for one in state.isr if one not in gone),
            uncleanly_stopped=uncleanly_stopped,
        )
        if record is not None:
            yield record


def replicas_lost(
    image: MetadataImage,
    config: ControllerConfig,
    broker: NodeId,
    lost: Iterable[TopicIdPartition],
) -> Iterator[Record]:
    """Yield the partition changes for replicas of a broker that have lost records. The replicas are
    not used until they have caught up.

    The replicas are removed from the ISR and ELR. They are no longer the last known leader, and are
    the last choice in unclean elections. Nothing changes for a replica that the broker does not
    have.
    """
    rules = TopicRules(image, config, leaving=(broker,))
    for partition in lost:
        state = image.partition(partition)
        if state is None or broker not in state.replicas:
            continue
        record = change_partition(
            partition,
            state,
            rules.of(image.topics[partition.topic_id], state),
            isr=tuple(one for one in state.isr if one != broker),
            lost=(broker,),
        )
        if record is not None:
            yield record


def _partitions_of(
    image: MetadataImage, brokers: Sequence[NodeId]
) -> Iterator[tuple[TopicIdPartition, PartitionState]]:
    """Yield every partition that has a replica on at least one of several brokers. Each partition
    is yielded once."""
    for position, broker in enumerate(brokers):
        earlier = brokers[:position]
        for partition, state in image.partitions_of(broker):
            if not any(one in state.replicas for one in earlier):
                yield partition, state


def broker_available(
    image: MetadataImage, config: ControllerConfig, broker: NodeId
) -> Iterator[Record]:
    """Yield the leader elections of leaderless partitions that have a replica on a broker that has
    returned."""
    rules = TopicRules(image, config, coming=broker)
    for partition, state in image.partitions_of(broker):
        if state.leader == NO_NODE:
            topic = image.topics[partition.topic_id]
            record = change_partition(partition, state, rules.of(topic, state))
            if record is not None:
                yield record


def rebalance(image: MetadataImage, config: ControllerConfig) -> tuple[Record, ...]:
    """Return the metadata records that restore preferred leaders, for at most
    `PREFERRED_ELECTIONS_MAX` partitions."""
    rules = TopicRules(image, config)
    records: list[Record] = []
    for topic, partition, state in _partitions(image):
        if state.leader == state.preferred_leader or state.preferred_leader not in state.isr:
            continue
        record = change_partition(
            partition, state, rules.of(topic, state), election=Election.PREFERRED
        )
        if record is not None:
            records.append(record)
        if len(records) == PREFERRED_ELECTIONS_MAX:
            break
    return tuple(records)


def elect_leaderless(image: MetadataImage, config: ControllerConfig) -> tuple[Record, ...]:
    """Return the leader elections of leaderless partitions that now have a replica that may lead.

    Such partitions exist after a topic has allowed unclean elections. They also exist after a
    controller crashed between the batches of the decision in which a broker returned.
    """
    rules = TopicRules(image, config)
    records = []
    for topic, partition, state in _partitions(image):
        if state.leader == NO_NODE:
            record = change_partition(partition, state, rules.of(topic, state))
            if record is not None:
                records.append(record)
    return tuple(records)


def elect_leaders(
    image: MetadataImage, context: Context, request: ElectLeadersRequest
) -> Decision[ElectLeadersResponse]:
    """Return the decision on an ElectLeaders request. If the request's topics are null, leaders are
    elected for all partitions that need an election.

    A partition that occurs twice in the request has one election and one result.
    """
    if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    is_everything = request.topic_partitions is None
    asked = _everything(image) if request.topic_partitions is None else request.topic_partitions
    rules = TopicRules(image, context.config)
    records: list[Record] = []
    results = []
    explanations = Explanations()
    wanted: dict[str, dict[int, None]] = {}
    for topic in asked:
        wanted.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    for name, partition_ids in wanted.items():
        outcomes = []
        for partition_id in partition_ids:
            record, outcome = _elect_one(image, rules, name, partition_id, request.election_type)
            if record is not None:
                records.append(record)
            outcome.error_message = explanations.of(outcome.error_message)
            if not (is_everything and outcome.error_code == ErrorCode.ELECTION_NOT_NEEDED):
                outcomes.append(outcome)
        if outcomes:
            results.append(ReplicaElectionResult(topic=name, partition_result=outcomes))
    return decided(image, records, ElectLeadersResponse(replica_election_results=results))


def _elect_one(
    image: MetadataImage,
    rules: TopicRules,
    topic_name: str,
    partition_id: int,
    election_type: int,
) -> tuple[Record | None, PartitionResult]:
    def outcome(code: ErrorCode, message: str | None = None) -> PartitionResult:
        return PartitionResult(partition_id=partition_id, error_code=code, error_message=message)

    topic = image.topic(topic_name)
    if topic is None:
        return None, outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}")
    state = topic.partitions.get(partition_id)
    if state is None:
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
        rules.of(topic, state),
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
