"""The input of the planner: brokers, partitions and limits."""

from collections.abc import Collection
from dataclasses import field
from typing import NamedTuple

from ottla.model.balance.plan_text import MOVES_MAX
from ottla.model.ids import NO_NODE, NodeId, TopicPartition
from ottla.model.limits import MIB
from ottla.model.values import frozen


class Volume(NamedTuple):
    """Space of the file system of one log directory, in bytes."""

    total_bytes: int
    used_bytes: int
    """Number of bytes in use on the file system, including files of other programs."""


@frozen(kw_only=True)
class BrokerLoad:
    """Load and state of one registered broker."""

    id: NodeId
    rack: str | None = None
    host: str | None = None
    """Name of the machine.  Brokers without a name count as one machine, as in the placement of
    new replicas."""
    is_active: bool = True
    """True if the broker is neither fenced nor drained."""
    is_cordoned: bool = False
    """True if the broker accepts no new replica (KIP-1066)."""
    version: str = ""
    """Release of the broker.  Empty if unknown."""
    volumes: tuple[Volume, ...] | None = ()
    """File systems of the log directories.  Empty if the broker reports no space; None if it did
    not report its logs, so that nothing is known about their sizes."""

    @property
    def domain(self) -> tuple[str | None, str | None]:
        """Rack and host of the broker."""
        return self.rack, self.host

    @property
    def total_bytes(self) -> int:
        """Size of all volumes in bytes; 0 if unknown."""
        return sum(one.total_bytes for one in self.volumes or ())

    def room_bytes(self, percent_max: int) -> int | None:
        """Return the number of bytes that the fullest volume accepts before it is `percent_max`
        full, or None if its size is unknown.

        The broker itself selects the directory of a new replica, so each directory must have enough
        free space.
        """
        rooms = [
            one.total_bytes * percent_max // 100 - one.used_bytes
            for one in self.volumes or ()
            if one.total_bytes > 0
        ]
        return min(rooms, default=None)


@frozen(kw_only=True)
class PartitionLoad:
    """Load of one partition: its replicas, its size and its rate."""

    at: TopicPartition
    replicas: tuple[NodeId, ...]
    """Replicas in order of preference: the first is the preferred leader."""
    isr: tuple[NodeId, ...]
    leader: NodeId = NO_NODE
    size_bytes: int = 0
    """Size of the partition's largest replica in bytes."""
    produce_bytes_per_s: int = 0
    min_insync_replicas: int = 1
    is_moving: bool = False
    """True if a reassignment of the partition is in progress."""
    has_throttle: bool = False
    """True if the topic has a list of throttled replicas that was not set by a balance."""


@frozen(kw_only=True)
class BalanceLimits:
    """Limits for one balance plan."""

    throttle_bytes_per_s: int | None = None
    """Maximum rate of the moves to and from each broker, in bytes per second. None means no
    limit."""
    disk_percent_max: int = 80
    """Maximum percentage of a volume that may be in use after the moves. A larger value leaves less
    space for records that are produced meanwhile."""
    tolerance_percent: int = 10
    """Maximum deviation of a broker from the mean, in percent. With a smaller value, more data is
    moved for less effect."""
    ignored_bytes: int = 64 * MIB
    """Deviation from the mean, in bytes, that is too small to justify copying logs."""
    moves_max: int = MOVES_MAX
    """Maximum number of partitions in one plan."""
    work_max: int = 1_000_000
    """Maximum number of candidate moves that the search examines, at some µs each.  With fewer, the
    plan of a large cluster may end before it is balanced; the next plan continues."""


@frozen(kw_only=True)
class ClusterLoad:
    """Description of a cluster for the planner of moves: its brokers and partitions."""

    brokers: tuple[BrokerLoad, ...]
    partitions: tuple[PartitionLoad, ...]
    leaving: Collection[NodeId] = field(default_factory=frozenset)
    """Brokers to free of all replicas.  They get no replica, and nothing else moves while one is
    leaving."""
