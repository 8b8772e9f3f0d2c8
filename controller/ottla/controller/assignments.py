"""From lists of brokers to new partitions: checks of what people assign, and the first state."""

from collections import Counter
from uuid import UUID

from ottla.controller.placement import Placement, turn_after
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.image import MetadataImage, PartitionState, Topic
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId


class NewTopics:
    """The partitions of new topics, which one request places one after the other."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._placement = Placement(image.brokers.values())
        self._turn = len(image.topics)

    def place(self, partition_count: int, replication_factor: int) -> list[PartitionState]:
        """Return a new topic's partitions, placed over the brokers.

        Raises RefusedError(INVALID_REPLICATION_FACTOR) if there are too few of these.
        """
        placed = self._placement.place(
            partition_count=partition_count,
            replication_factor=replication_factor,
            turn=self._turn,
        )
        return [
            new_partition(self._image, index, replicas) for index, replicas in enumerate(placed)
        ]

    def count(self) -> None:
        """Note that a topic is made: another broker begins the next one."""
        self._turn += 1


def place_more(
    image: MetadataImage, grown: Topic, partition_count: int, replication_factor: int
) -> list[PartitionState]:
    """Return partitions by which a topic grows, placed over the brokers.

    Raises RefusedError(INVALID_REPLICATION_FACTOR) if there are too few of these.
    """
    brokers = list(image.brokers.values())
    first = len(grown.partitions)
    turn = turn_after(brokers, grown.partitions[first - 1].preferred_leader, first)
    placed = Placement(brokers).place(
        partition_count=partition_count,
        replication_factor=replication_factor,
        turn=len(image.topics) if turn is None else turn,
    )
    return [new_partition(image, index, replicas) for index, replicas in enumerate(placed, first)]


def new_partition(
    image: MetadataImage, partition_id: int, replicas: tuple[NodeId, ...]
) -> PartitionState:
    """Return a partition's first state: in sync are the brokers that live."""
    isr = tuple(replica for replica in replicas if image.is_active(replica))
    if not isr:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in the manual partition assignment for partition "
            f"{partition_id} are fenced or in controlled shutdown.",
        )
    directories = tuple(directory_for(image, replica) for replica in replicas)
    return PartitionState(replicas=replicas, directories=directories, isr=isr, leader=isr[0])


def directory_for(image: MetadataImage, replica: NodeId) -> UUID:
    """Return where a new replica will lie: a broker with several directories chooses itself."""
    log_dirs = image.brokers[replica].log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED


def check_manual(
    image: MetadataImage, replicas: tuple[NodeId, ...], replication_factor: int | None
) -> None:
    """Refuse an assignment of unknown, repeated or too few brokers."""
    problem = None
    times = Counter(replicas)
    repeated = min((one for one, count in times.items() if count > 1), default=None)
    unknown = next((one for one in replicas if one not in image.brokers), None)
    if not replicas:
        problem = "an empty replica list."
    elif repeated is not None:
        problem = f"the broker {repeated} more than once."
    elif unknown is not None:
        problem = f"broker {unknown}, but no such broker is registered."
    elif replication_factor not in (None, len(replicas)):
        problem = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {replication_factor} replica(s)."
        )
    if problem is not None:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {problem}",
        )
