"""The output of the planner: moves, reasons for moves not made, loads before and after."""

from typing import NamedTuple

from ottla.model.ids import NodeId, TopicPartition
from ottla.model.values import frozen


@frozen
class PlannedMove:
    """One partition before and after a planned move."""

    at: TopicPartition
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    size_bytes: int = 0
    reason: str = ""

    @property
    def adding(self) -> tuple[NodeId, ...]:
        """Brokers that copy the partition."""
        return tuple(one for one in self.after if one not in self.before)

    @property
    def removing(self) -> tuple[NodeId, ...]:
        """Brokers that delete the partition after the move."""
        return tuple(one for one in self.before if one not in self.after)

    @property
    def copied_bytes(self) -> int:
        """Number of bytes that the new replicas copy."""
        return len(self.adding) * self.size_bytes


class UnmovedReason(NamedTuple):
    """The reason why a partition, the replicas of a broker, or the whole cluster does not move."""

    subject: str
    """The partition or broker.  Empty for the whole cluster."""
    reason: str


class BrokerTotals(NamedTuple):
    """Load of one broker: bytes of its replicas, their number, and the partitions that it leads if
    every preferred leader leads."""

    size_bytes: int
    replica_count: int
    leader_count: int


@frozen(kw_only=True)
class BalancePlan:
    """Moves in the order in which they are to be started: first elections, then copies. Also the
    reasons for moves not made, and the loads before and after."""

    moves: tuple[PlannedMove, ...] = ()
    unmoved: tuple[UnmovedReason, ...] = ()
    before: dict[NodeId, BrokerTotals]
    after: dict[NodeId, BrokerTotals]
    is_refused: bool = False
    """True if the state of the cluster permits no move at all."""

    @property
    def copied_bytes(self) -> int:
        """Number of bytes that all moves copy."""
        return sum(move.copied_bytes for move in self.moves)

    def seconds(self, throttle_bytes_per_s: int) -> float:
        """Return the shortest duration of the copies under a throttle, which applies to each broker
        in each direction."""
        arriving: dict[NodeId, int] = {}
        leaving: dict[NodeId, int] = {}
        for move in self.moves:
            for broker in move.adding:
                arriving[broker] = arriving.get(broker, 0) + move.size_bytes
            sender = move.before[0]
            leaving[sender] = leaving.get(sender, 0) + move.copied_bytes
        most = max([*arriving.values(), *leaving.values()], default=0)
        return most / throttle_bytes_per_s
