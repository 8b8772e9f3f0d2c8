"""Table of the replicas on this broker, and the errors for all other partitions.

Pure. Requests name topics by name (old versions) or by id. The table maps each name and each id to
a `dict[index, Partition]`, so a replica is found by two dictionary lookups. The metadata image is
used only for partitions without a replica here, to choose the right error: an unknown topic, or a
partition that another broker leads.
"""

from collections.abc import Iterator
from uuid import UUID

from ottla.broker.replicas.partition import Partition
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, NO_NODE, ZERO_UUID


class PartitionTable:
    """Partitions on this broker by (name, index) and (id, index), and the last published metadata
    image."""

    __slots__ = ("by_id", "by_name", "image", "opening")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[UUID, dict[int, Partition]] = {}
        self.opening: dict[str, dict[Partition, None]] = {}
        """Partitions whose logs are being opened for the first time, by topic, in the order in
        which they were added.

        The values are dictionaries, because the order of a set would depend on memory addresses.
        """

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_id.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self.by_id.values()))

    def add(self, partition: Partition) -> None:
        """Add a replica on this broker. The replica of a recreated topic replaces the replica of
        the old topic with the same name."""
        indexed = self.by_id.setdefault(partition.topic_id, {})
        assert partition.index not in indexed
        indexed[partition.index] = partition
        self.by_name[partition.topic] = indexed

    def remove(self, partition: Partition) -> None:
        """Remove a replica on this broker from the table."""
        indexed = self.by_id[partition.topic_id]
        del indexed[partition.index]
        if not indexed:
            del self.by_id[partition.topic_id]
            if self.by_name.get(partition.topic) is indexed:
                del self.by_name[partition.topic]

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, or None if no topic has the id."""
        topic = self.image.topics.get(topic_id)
        return None if topic is None else topic.name

    def find(self, topic: str, index: int) -> Partition:
        """Return a partition that has a replica on this broker. Otherwise, raise RefusedError with
        the error code that follows from the metadata image."""
        indexed = self.by_name.get(topic)
        partition = None if indexed is None else indexed.get(index)
        if partition is None:
            known = self.image.topic(topic)
            if known is not None and index in known.partitions:
                raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def find_by_id(self, topic_id: UUID, index: int) -> Partition:
        """Return the partition with a topic id and an index, if it has a replica on this broker.
        Otherwise, raise RefusedError with the error code that follows from the metadata image."""
        indexed = self.by_id.get(topic_id)
        partition = None if indexed is None else indexed.get(index)
        if partition is None:
            known = self.image.topics.get(topic_id)
            if known is None:
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
            if index in known.partitions:
                raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def current_leader(self, topic: str, topic_id: UUID, index: int) -> tuple[int, int]:
        """Return the id of a partition's leader and its leader epoch from the metadata image, or
        (-1, -1) if they are unknown."""
        image = self.image
        known = image.topic(topic) if topic_id == ZERO_UUID else image.topics.get(topic_id)
        state = None if known is None else known.partitions.get(index)
        if state is None:
            return NO_NODE, NO_EPOCH
        return state.leader, state.leader_epoch
