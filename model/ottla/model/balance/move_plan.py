"""Output of the planner of balance moves: moves, reasons for moves not made, and broker loads
before and after."""

from typing import NamedTuple

from ottla.model.ids import NodeId, TopicPartition
from ottla.model.values import frozen


@frozen
class PlannedMove:
    """A planned move of one partition: its replicas before and after."""

    at: TopicPartition
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    size_bytes: int = 0
    reason: str = ""

    @property
    def adding(self) -> tuple[NodeId, ...]:
        """Brokers that copy the partition during the move."""
        return tuple(one for one in self.after if one not in self.before)

    @property
    def removing(self) -> tuple[NodeId, ...]:
        """Brokers that delete the partition after the move."""
        return tuple(one for one in self.before if one not in self.after)

    @property
    def copied_bytes(self) -> int:
        """Total number of bytes that all new replicas copy."""
        return len(self.adding) * self.size_bytes


class UnmovedReason(NamedTuple):
    """The reason why the planner does not move a partition, the replicas of a broker, or anything
    at all."""

    subject: str
    """The partition or broker that the reason is about. Empty if the reason applies to the whole
    cluster."""
    reason: str


class BrokerTotals(NamedTuple):
    """Load of one broker: its bytes, its number of replicas, and the number of partitions whose
    preferred leader it is."""

    size_bytes: int
    replica_count: int
    leader_count: int


@frozen(kw_only=True)
class BalancePlan:
    """Planned moves in the order in which they are started: first leader elections, then copies.

    The plan also contains the reasons why other moves are not made, and the loads of brokers before
    and after.
    """

    moves: tuple[PlannedMove, ...] = ()
    unmoved: tuple[UnmovedReason, ...] = ()
    before: dict[NodeId, BrokerTotals]
    after: dict[NodeId, BrokerTotals]
    is_refused: bool = False
    """True if the state of the cluster permits no move at all."""

    @property
    def copied_bytes(self) -> int:
        """Total number of bytes that all moves copy."""
        return sum(move.copied_bytes for move in self.moves)

    def seconds(self, throttle_bytes_per_s: int) -> float:
        """Return the shortest possible duration of all copies, in seconds. The throttle limits the
        bytes per second that each broker sends, and those that it receives."""
        arriving: dict[NodeId, int] = {}
        leaving: dict[NodeId, int] = {}
        for move in self.moves:
            for broker in move.adding:
                arriving[broker] = arriving.get(broker, 0) + move.size_bytes
            sender = move.before[0]
            leaving[sender] = leaving.get(sender, 0) + move.copied_bytes
        most = max([*arriving.values(), *leaving.values()], default=0)
        return most / throttle_bytes_per_s
