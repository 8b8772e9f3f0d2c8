"""Types for the replicas of partitions, and for reassignments in progress. Pure."""

from dataclasses import dataclass

from ottla.model.ids import TopicPartition
from ottla.wire.messages.metadata_response import MetadataResponse


@dataclass(frozen=True, slots=True, order=True)
class ReplicaAssignment:
    """The replicas of one partition as broker ids, the preferred leader first."""

    topic: str
    partition: int
    replicas: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name of the partition in messages, such as orders-0."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OngoingMove:
    """A reassignment in progress of one partition."""

    at: TopicPartition
    replicas: tuple[int, ...]
    """Broker ids of the partition's present replicas, including replicas that are being added or
    removed."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name of the reassigned partition in messages, such as orders-0."""
        return str(self.at)

    @property
    def target(self) -> tuple[int, ...]:
        """Broker ids of the partition's replicas after the reassignment."""
        return tuple(one for one in self.replicas if one not in self.removing)


def assignments_in(metadata: MetadataResponse) -> list[ReplicaAssignment]:
    """Return the replicas of every partition in a metadata response, sorted by partition."""
    return sorted(
        ReplicaAssignment(topic.name or "", row.partition_index, tuple(row.replica_nodes))
        for topic in metadata.topics
        for row in topic.partitions
    )
