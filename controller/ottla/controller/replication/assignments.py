"""Initial states of new partitions, and checks of the replica assignments that clients request."""

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from ottla.controller.replication.placement import Placement, turn_after
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.image import MetadataImage, PartitionState, Topic
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId


class NewTopics:
    """Placement of replicas on brokers for the topics of one CreateTopics request, one topic after
    another."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._placement = Placement(image.brokers.values())
        self._turn = len(image.topics)

    def place(self, partition_count: int, replication_factor: int) -> list[PartitionState]:
        """Return the initial states of a new topic's partitions, with their replicas placed on
        brokers.

        Raises RefusedError(INVALID_REPLICATION_FACTOR) if there are too few brokers.
        """
        placed = self._placement.place(
            partition_count=partition_count,
            replication_factor=replication_factor,
            turn=self._turn,
        )
        return _new_partitions(self._image, placed, 0)

    def count(self) -> None:
        """Count a topic that was created. The placement of the next topic then starts at another
        broker."""
        self._turn += 1


def place_more(
    image: MetadataImage, grown: Topic, partition_count: int, replication_factor: int
) -> list[PartitionState]:
    """Return the initial states of the partitions that are added to a topic, with their replicas
    placed on brokers.

    Raises RefusedError(INVALID_REPLICATION_FACTOR) if there are too few brokers.
    """
    brokers = list(image.brokers.values())
    first = len(grown.partitions)
    turn = turn_after(brokers, grown.partitions[first - 1].preferred_leader, first)
    placed = Placement(brokers).place(
        partition_count=partition_count,
        replication_factor=replication_factor,
        turn=len(image.topics) if turn is None else turn,
    )
    return _new_partitions(image, placed, first)


def _new_partitions(
    image: MetadataImage, placed: Sequence[tuple[NodeId, ...]], first: int
) -> list[PartitionState]:
    """Return the initial states of new partitions, of which the first has the number `first`.
    Partitions with the same replicas share a state."""
    states: dict[tuple[NodeId, ...], PartitionState] = {}
    found = []
    for index, replicas in enumerate(placed, first):
        state = states.get(replicas)
        if state is None:
            state = states[replicas] = new_partition(image, index, replicas)
        found.append(state)
    return found


def new_partition(
    image: MetadataImage, partition_id: int, replicas: tuple[NodeId, ...]
) -> PartitionState:
    """Return the initial state of a new partition. The replicas on active brokers are in sync."""
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
    """Return the log directory id of a new replica on a broker. A broker with several directories
    chooses the directory itself."""
    log_dirs = image.brokers[replica].log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED


def check_manual(
    image: MetadataImage,
    replicas: tuple[NodeId, ...],
    replication_factor: int | None,
    before: Collection[NodeId] = (),
) -> None:
    """Raise RefusedError if a client's assignment of replicas to brokers is invalid: empty, with
    unknown, cordoned or repeated brokers, or with a number of brokers that differs from
    `replication_factor`. If `replication_factor` is None, any number is valid.

    A cordoned broker is valid if it is in `before`, the brokers that already have a replica. (In
    Kafka, a partition with a replica on a cordoned broker cannot be reassigned.)
    """
    problem = _problem_of(image, replicas, before)
    if problem is None and replication_factor not in (None, len(replicas)):
        problem = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {replication_factor} replica(s)."
        )
    if problem is not None:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {problem}",
        )


def _problem_of(
    image: MetadataImage, replicas: tuple[NodeId, ...], before: Collection[NodeId]
) -> str | None:
    """Return the first problem of a replica assignment, or None if it is valid. Brokers are checked
    in the order of their ids, as in Kafka."""
    if not replicas:
        return "an empty replica list."
    former = None
    for one in sorted(replicas):
        broker = image.brokers.get(one)
        if broker is None:
            return f"broker {one}, but no such broker is registered."
        if broker.is_cordoned and one not in before:
            return f"broker {one}, but all its log directories are cordoned."
        if one == former:
            return f"the broker {one} more than once."
        former = one
    return None


def check_hosts(
    image: MetadataImage, replicas: tuple[NodeId, ...], before: Iterable[NodeId] = ()
) -> None:
    """Raise RefusedError if a client's assignment puts several replicas on one host although the
    active brokers have enough hosts. The assignment is allowed if the previous assignment `before`
    has at least as many replicas on one host.

    Kafka has no notion of hosts. A host may run a broker for each core. The loss of such a host
    could mean the loss of several replicas, and min.insync.replicas would count brokers that fail
    together.
    """
    shared = _shared_host(image, replicas)
    if shared is None or _sharing_count(image, replicas) <= _sharing_count(image, before):
        return
    hosts = {_host_of(image, one.id) for one in image.brokers.values() if one.is_active}
    if len(hosts) < len(replicas):
        return
    first, second = shared
    raise RefusedError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"The manual partition assignment includes brokers {first} and {second}, which are on one "
        f"host, {image.brokers[first].host}, although the active brokers are on {len(hosts)} "
        "hosts.",
    )


def _host_of(image: MetadataImage, broker: NodeId) -> tuple[str | None, str | NodeId]:
    """Return the failure domain of a broker: its rack and host. A broker without a host is its own
    failure domain."""
    found = image.brokers.get(broker)
    return (None, broker) if found is None else (found.rack, found.host or broker)


def _sharing_count(image: MetadataImage, replicas: Iterable[NodeId]) -> int:
    """Return the number of a partition's replicas that share their host with an earlier replica."""
    hosts = [_host_of(image, one) for one in replicas]
    return len(hosts) - len(set(hosts))


def _shared_host(image: MetadataImage, replicas: Iterable[NodeId]) -> tuple[NodeId, NodeId] | None:
    """Return the first two replicas of a partition that share a host, or None if no replicas do."""
    known: dict[object, NodeId] = {}
    for replica in replicas:
        other = known.setdefault(_host_of(image, replica), replica)
        if other != replica:
            return other, replica
    return None
