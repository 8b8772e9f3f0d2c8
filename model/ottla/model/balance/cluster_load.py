"""Input of the planner of balance moves: brokers, partitions and limits."""

from collections.abc import Collection
from dataclasses import field
from typing import NamedTuple

from ottla.model.balance.plan_text import MOVES_MAX
from ottla.model.ids import NO_NODE, NodeId, TopicPartition
from ottla.model.limits import MIB
from ottla.model.values import frozen


class Volume(NamedTuple):
    """File system that contains a log directory: its size and its used space, in bytes."""

    total_bytes: int
    used_bytes: int
    """Number of bytes in use on the file system, including files of other programs."""


@frozen(kw_only=True)
class BrokerLoad:
    """Load and state of one registered broker."""

    id: NodeId
    rack: str | None = None
    host: str | None = None
    """Name of the machine that runs the broker. All brokers without a name count as running on one
    machine, as in the placement of new replicas."""
    is_active: bool = True
    """True if the broker is neither fenced nor drained."""
    is_cordoned: bool = False
    """True if the broker accepts no new replica (KIP-1066)."""
    version: str = ""
    """Release of Ottla that the broker runs. Empty if unknown."""
    volumes: tuple[Volume, ...] | None = ()
    """File systems of the broker's log directories. Empty if the broker reports no disk space. None
    if the broker has not described its logs, so that their sizes are unknown."""

    @property
    def domain(self) -> tuple[str | None, str | None]:
        """Failure domain of the broker: the names of its rack and its host. A name is None if it is
        not known."""
        return self.rack, self.host

    @property
    def total_bytes(self) -> int:
        """Total size of the broker's volumes in bytes; 0 if unknown."""
        return sum(one.total_bytes for one in self.volumes or ())

    def room_bytes(self, percent_max: int) -> int | None:
        """Return the maximum size in bytes of a replica that fits on every volume of the broker, if
        a volume may be `percent_max` percent full. Returns None if the sizes of the volumes are
        unknown.

        The broker itself selects the log directory of a new replica, so each volume must have
        enough free space.
        """
        rooms = [
            one.total_bytes * percent_max // 100 - one.used_bytes
            for one in self.volumes or ()
            if one.total_bytes > 0
        ]
        return min(rooms, default=None)


@frozen(kw_only=True)
class PartitionLoad:
    """Load of one partition: its replicas, its size and its produce rate."""

    at: TopicPartition
    replicas: tuple[NodeId, ...]
    """Broker ids of the replicas in order of preference. The first is the preferred leader."""
    isr: tuple[NodeId, ...]
    leader: NodeId = NO_NODE
    size_bytes: int = 0
    """Size of the partition's largest replica in bytes."""
    produce_bytes_per_s: int = 0
    min_insync_replicas: int = 1
    is_moving: bool = False
    """True if a reassignment of the partition is in progress."""
    has_throttle: bool = False
    """True if the topic has a list of throttled replicas that an administrator has set, not a
    balance."""


@frozen(kw_only=True)
class BalanceLimits:
    """Limits that one balance plan must respect: rate, disk usage, tolerance, number of moves."""

    throttle_bytes_per_s: int | None = None
    """Maximum rate at which each broker sends, and receives, the data of the moves, in bytes per
    second. None means no limit."""
    disk_percent_max: int = 80
    """Maximum percentage of a volume that may be in use after the moves. A larger value leaves less
    space for records that clients produce during the moves."""
    tolerance_percent: int = 10
    """Maximum deviation of a broker from its share of the load, in percent. With a smaller value,
    the moves copy more data for a smaller improvement."""
    ignored_bytes: int = 64 * MIB
    """Deviation of a broker from its share, in bytes, that is too small to justify copying logs."""
    moves_max: int = MOVES_MAX
    """Maximum number of partitions that one plan moves."""
    work_max: int = 1_000_000
    """Maximum number of candidate moves that the search examines. Each takes some microseconds.
    With a smaller number, the plan of a large cluster may be incomplete. The next plan then
    continues."""


@frozen(kw_only=True)
class ClusterLoad:
    """Brokers and partitions of a cluster, as input of the planner of balance moves."""

    brokers: tuple[BrokerLoad, ...]
    partitions: tuple[PartitionLoad, ...]
    leaving: Collection[NodeId] = field(default_factory=frozenset)
    """Ids of the brokers that must lose all their replicas. They receive no replica. If there are
    any, the planner moves only their replicas."""
