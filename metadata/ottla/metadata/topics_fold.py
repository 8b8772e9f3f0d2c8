"""Applies metadata records about topics, their settings and their partitions to an image, in bulk.

A new topic has several records, and a broker that shuts down changes all its partitions. For any
number of records, each map of the image is copied only once, and `finish` creates one new image. A
record that does not fit the image raises CorruptDataError. The original image never changes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast
from uuid import UUID

from ottla.metadata.image import (
    NO_CONFIG,
    NO_PARTITIONS,
    MetadataImage,
    PartitionState,
    RecoveryState,
    Topic,
)
from ottla.metadata.persistent_map import MapChanges
from ottla.metadata.records import TOPIC_RESOURCE, Record
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, NodeId, TopicIdPartition
from ottla.proto import metadata_pb2 as pb

T = TypeVar("T")

STATES_CACHED_MAX = 1_000
"""Maximum number of different partition states that a fold caches. Partitions of new topics have
few different states: one for each order of their replicas. With a larger number, the fold of a
snapshot would use more memory."""

RECOVERY_STATES = {int(state): state for state in RecoveryState}


class TopicsFold:
    """A metadata image under construction, to which records about topics are applied in bulk."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topics = MapChanges(image.topics)
        self._topic_ids = MapChanges(image.topic_ids)
        self._configs = MapChanges(image.configs)
        self._partitions: dict[UUID, MapChanges[int, PartitionState]] = {}
        """Changed partitions by topic id and partition number. Contains only topics with partitions
        that differ from `_topics`."""
        self._held: dict[NodeId, MapChanges[TopicIdPartition, None]] = {}
        self._ids: dict[bytes, UUID] = {}
        """Cache of UUIDs decoded from bytes, because the same ids of topics and directories occur
        repeatedly."""
        self._shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        """Tuples of ids that partitions share: replicas, directories and in-sync replicas of many
        partitions are equal. Three unshared tuples would take 150 bytes in each partition."""
        self._states: dict[bytes, PartitionState] = {}
        """States of partitions by the bytes of their records, without the partitions' ids. Reading
        the fields of a record takes ten times as long as a look-up."""

    def fold(self, record: Record) -> None:
        """Apply a metadata record whose kind is in `TOPIC_KINDS` to the image under
        construction."""
        kind = record.WhichOneof("record")
        assert kind is not None
        FOLDS[kind](self, getattr(record, kind))

    def finish(self) -> MetadataImage:
        """Return the metadata image after all applied records."""
        topics = self._topics
        for topic_id, states in self._partitions.items():
            topics.set(topic_id, Topic(topics[topic_id].name, topic_id, states.finish()))
        index = MapChanges(self._image.partitions_by_broker)
        for broker, held in self._held.items():
            partitions = held.finish()
            if partitions:
                index.set(broker, partitions)
            else:
                index.discard(broker)
        return replace(
            self._image,
            topics=topics.finish(),
            topic_ids=self._topic_ids.finish(),
            configs=self._configs.finish(),
            partitions_by_broker=index.finish(),
        )

    def add_topic(self, record: pb.Topic) -> None:
        """Apply a Topic record: add a topic, which has no partitions yet."""
        topic = Topic(record.name, self._id(record.topic_id))
        if topic.name in self._topic_ids or topic.id in self._topics:
            raise CorruptDataError(f"metadata record: topic {topic.name} exists already")
        self._topics.set(topic.id, topic)
        self._topic_ids.set(topic.name, topic.id)

    def remove_topic(self, record: pb.RemoveTopic) -> None:
        """Apply a RemoveTopic record: remove a topic with its partitions and settings."""
        topic = self._topic(record.topic_id)
        for partition_id, state in self._states_of(topic).finish().unordered_items():
            self._place(TopicIdPartition(topic.id, partition_id), state.replicas, ())
        del self._partitions[topic.id]
        self._topics.discard(topic.id)
        self._topic_ids.discard(topic.name)
        self._configs.discard((TOPIC_RESOURCE, topic.name))

    def set_partition(self, record: pb.Partition) -> None:
        """Apply a Partition record: set the whole state of a new or existing partition."""
        topic = self._topic(record.topic_id)
        rest = pb.Partition()
        rest.CopyFrom(record)
        rest.ClearField("topic_id")
        rest.ClearField("partition_id")
        content = rest.SerializeToString()
        state = self._states.get(content)
        if state is None:
            state = self._read_partition(record)
            _check(topic, record.partition_id, state)
            if len(self._states) >= STATES_CACHED_MAX:
                self._states.clear()
            self._states[content] = state
        self._set_checked(topic, record.partition_id, state)

    def change_partition(self, record: pb.PartitionChange) -> None:
        """Apply a PartitionChange record: change an existing partition."""
        topic = self._topic(record.topic_id)
        old = self._states_of(topic).get(record.partition_id)
        if old is None:
            raise CorruptDataError(
                f"metadata record: a change of {topic.name}-{record.partition_id}, "
                "which does not exist"
            )
        self.set_state(topic, record.partition_id, merge(old, record))

    def set_config(self, record: pb.Config) -> None:
        """Apply a Config record: set or remove one setting of a resource of any type."""
        resource = (record.resource_type, record.resource_name)
        values = self._configs.get(resource) or NO_CONFIG
        if record.HasField("value"):
            values = values.set(record.key, record.value)
        else:
            values = values.discard(record.key)
        if values:
            self._configs.set(resource, values)
        else:
            self._configs.discard(resource)

    def set_state(self, topic: Topic, partition_id: int, state: PartitionState) -> None:
        """Set the state of one partition of a topic in the image under construction."""
        _check(topic, partition_id, state)
        self._set_checked(topic, partition_id, state)

    def _set_checked(self, topic: Topic, partition_id: int, state: PartitionState) -> None:
        states = self._states_of(topic)
        old = states.get(partition_id)
        states.set(partition_id, state)
        before = () if old is None else old.replicas
        if before != state.replicas:
            self._place(TopicIdPartition(topic.id, partition_id), before, state.replicas)

    def _states_of(self, topic: Topic) -> MapChanges[int, PartitionState]:
        found = self._partitions.get(topic.id)
        if found is None:
            found = self._partitions[topic.id] = MapChanges(topic.partitions)
        return found

    def _place(
        self, partition: TopicIdPartition, before: Sequence[NodeId], after: Sequence[NodeId]
    ) -> None:
        """Update the image's index of partitions by broker after a partition's replicas changed
        from `before` to `after`."""
        for broker in before:
            if broker not in after:
                self._held_by(broker).discard(partition)
        for broker in after:
            if broker not in before:
                self._held_by(broker).set(partition, None)

    def _held_by(self, broker: NodeId) -> MapChanges[TopicIdPartition, None]:
        found = self._held.get(broker)
        if found is None:
            held = self._image.partitions_by_broker.get(broker, NO_PARTITIONS)
            found = self._held[broker] = MapChanges(held)
        return found

    def _topic(self, data: bytes) -> Topic:
        topic = self._topics.get(self._id(data))
        if topic is None:
            raise CorruptDataError(f"metadata record: there is no topic of id {data.hex()}")
        return topic

    def _id(self, data: bytes) -> UUID:
        found = self._ids.get(data)
        if found is None:
            found = self._ids[data] = read_uuid(data)
        return found

    def _read_partition(self, record: pb.Partition) -> PartitionState:
        return PartitionState(
            replicas=self._node_ids(record.replicas),
            directories=self._share(tuple(map(self._id, record.directories))),
            isr=self._node_ids(record.isr),
            elr=self._node_ids(record.eligible_leader_replicas),
            last_known_elr=self._node_ids(record.last_known_elr),
            leader=NodeId(record.leader),
            leader_epoch=Epoch(record.leader_epoch),
            partition_epoch=record.partition_epoch,
            adding=self._node_ids(record.adding_replicas),
            removing=self._node_ids(record.removing_replicas),
            recovery_state=_recovery_state(record.leader_recovery_state),
            unclean_leader_epoch=Epoch(record.unclean_leader_epoch),
            lost=self._node_ids(record.lost_replicas),
        )

    def _node_ids(self, ids: Iterable[int]) -> tuple[NodeId, ...]:
        return self._share(_node_ids(ids))

    def _share(self, ids: tuple[T, ...]) -> tuple[T, ...]:
        """Return an equal tuple that this fold has created before, or `ids` itself."""
        return self._shared.setdefault(ids, ids)


FOLDS: dict[str, Callable[[TopicsFold, Any], None]] = {
    "topic": TopicsFold.add_topic,
    "remove_topic": TopicsFold.remove_topic,
    "partition": TopicsFold.set_partition,
    "partition_change": TopicsFold.change_partition,
    "config": TopicsFold.set_config,
}

TOPIC_KINDS = frozenset(FOLDS)
"""The kinds of metadata records about topics that this module applies."""


def fold_topics(image: MetadataImage, records: Iterable[Record]) -> MetadataImage:
    """Return the metadata image after the given records have been applied. The kind of each record
    must be in `TOPIC_KINDS`."""
    topics = TopicsFold(image)
    for record in records:
        topics.fold(record)
    return topics.finish()


def merge(old: PartitionState, record: pb.PartitionChange) -> PartitionState:
    """Return the state of a partition after a PartitionChange record. Fields absent from the record
    keep their values."""
    has = record.HasField
    leads = has("leader")
    leader_epoch = Epoch(old.leader_epoch + 1) if leads else old.leader_epoch
    recovery_state = (
        _recovery_state(record.leader_recovery_state)
        if has("leader_recovery_state")
        else old.recovery_state
    )
    is_unclean = leads and record.leader >= 0 and recovery_state is RecoveryState.RECOVERING
    return PartitionState(
        replicas=_node_ids(record.replicas.ids) if has("replicas") else old.replicas,
        directories=(
            tuple(read_uuid(one) for one in record.directories.ids)
            if has("directories")
            else old.directories
        ),
        isr=_node_ids(record.isr.ids) if has("isr") else old.isr,
        elr=(
            _node_ids(record.eligible_leader_replicas.ids)
            if has("eligible_leader_replicas")
            else old.elr
        ),
        last_known_elr=(
            _node_ids(record.last_known_elr.ids) if has("last_known_elr") else old.last_known_elr
        ),
        leader=NodeId(record.leader) if leads else old.leader,
        leader_epoch=leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        adding=_node_ids(record.adding_replicas.ids) if has("adding_replicas") else old.adding,
        removing=(
            _node_ids(record.removing_replicas.ids) if has("removing_replicas") else old.removing
        ),
        recovery_state=recovery_state,
        unclean_leader_epoch=leader_epoch if is_unclean else old.unclean_leader_epoch,
        lost=_node_ids(record.lost_replicas.ids) if has("lost_replicas") else old.lost,
    )


def _check(topic: Topic, partition_id: int, state: PartitionState) -> None:
    """Raise CorruptDataError if a partition's state breaks an invariant of the metadata image, such
    as a leader that is no replica."""
    replicas = set(state.replicas)
    where = f"metadata record: {topic.name}-{partition_id}"
    if not replicas or len(replicas) != len(state.replicas):
        raise CorruptDataError(f"{where}: replicas {state.replicas}")
    if len(state.directories) != len(state.replicas):
        raise CorruptDataError(f"{where}: one directory is needed for each replica")
    if not replicas.issuperset(state.isr) or not replicas.issuperset(state.elr):
        raise CorruptDataError(f"{where}: ISR or ELR outside the replicas")
    if not set(state.isr).isdisjoint(state.elr):
        raise CorruptDataError(f"{where}: ISR and ELR share a replica")
    if state.leader >= 0 and state.leader not in state.isr:
        raise CorruptDataError(f"{where}: the leader {state.leader} is not in the ISR")


def _node_ids(ids: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(cast(Iterable[NodeId], ids))


def _recovery_state(number: int) -> RecoveryState:
    state = RECOVERY_STATES.get(number)
    if state is None:
        raise CorruptDataError(f"metadata record: leader recovery state {number}")
    return state


def read_uuid(data: bytes) -> UUID:
    """Return the UUID in a field of a metadata record. Raises CorruptDataError if the field is not
    16 bytes long."""
    if len(data) != 16:
        raise CorruptDataError(f"metadata record: a uuid of {len(data)} bytes")
    return UUID(bytes=data)
