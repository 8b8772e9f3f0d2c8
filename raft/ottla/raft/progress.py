"""What a leader believes of each replica: pure bookkeeping, and the majority's arithmetic."""

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.model.ids import NO_OFFSET, Epoch, NodeId, Offset
from ottla.model.values import frozen
from ottla.raft.transitions import Standing
from ottla.raft.voters import ReplicaKey


@dataclass(slots=True)
class Progress:
    """How far one replica has got, by its own fetches in this epoch."""

    key: ReplicaKey
    last_contact_ms: int
    """When it last fetched; at first when the epoch began."""
    end_offset: Offset = NO_OFFSET
    """Everything below is flushed on that replica (fetched, for an observer)."""
    last_caught_up_ms: int = -1
    """The latest instant at which it had all that the leader had then; -1: never."""
    begin_due_ms: int = 0
    """When to make the leadership known to it (again)."""
    standing: Standing = Standing.FULL
    """As it told last."""
    _leader_end_at_contact: Offset = NO_OFFSET

    def on_fetch(self, fetch_offset: Offset, leader_end_offset: Offset, now_ms: int) -> None:
        """Take in a valid fetch."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif NO_OFFSET < self._leader_end_at_contact <= fetch_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_contact_ms)
        # A fetch that was overtaken by a later one must not take an acknowledgement back.
        self.end_offset = max(self.end_offset, fetch_offset)
        self._leader_end_at_contact = leader_end_offset
        self.last_contact_ms = now_ms


@frozen(kw_only=True)
class ReplicaProgress:
    """One replica in a quorum's description; the instants are monotonic milliseconds or -1."""

    key: ReplicaKey
    end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int
    standing: Standing = Standing.FULL


@frozen(kw_only=True)
class QuorumProgress:
    """What DescribeQuorum tells; only a leader knows it."""

    leader_id: NodeId
    leader_epoch: Epoch
    high_watermark: Offset
    voters: tuple[ReplicaProgress, ...]
    observers: tuple[ReplicaProgress, ...]


def majority_value(values: Iterable[int], majority_count: int) -> int:
    """Return the highest number that `majority_count` of the values reach."""
    ordered = sorted(values, reverse=True)
    assert 1 <= majority_count <= len(ordered)
    return ordered[majority_count - 1]
