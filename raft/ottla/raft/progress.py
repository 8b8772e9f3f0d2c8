"""The leader's record of each replica's fetch progress, the offset that a majority has reached, and
the reply to DescribeQuorum.

`Progress` is the leader's mutable record of one replica. `QuorumProgress` and `ReplicaProgress` are
its immutable copy, from which a DescribeQuorum request is answered.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.model.ids import NO_OFFSET, Epoch, NodeId, Offset
from ottla.model.values import frozen
from ottla.raft.transitions import Standing
from ottla.raft.voters import ReplicaKey


@dataclass(slots=True)
class Progress:
    """Progress of one replica, as its fetches in the leader's epoch show it."""

    key: ReplicaKey
    last_contact_ms: int
    """Monotonic time in ms of the replica's last fetch from the leader; initially the start of the
    epoch."""
    end_offset: Offset = NO_OFFSET
    """End offset of the entries that the replica has flushed. For an observer, the end offset of
    the entries that it has fetched."""
    last_caught_up_ms: int = -1
    """Monotonic time in ms at which the replica last had the leader's whole log, or -1 if this has
    never been the case."""
    begin_due_ms: int = 0
    """Monotonic time in ms at which the next BeginQuorumEpoch request to the replica is due."""
    standing: Standing = Standing.FULL
    """Standing that the replica reported in its last fetch: FULL, or a lower value after a loss of
    votes or of acknowledged entries."""
    _leader_end_at_contact: Offset = NO_OFFSET

    def on_fetch(self, fetch_offset: Offset, leader_end_offset: Offset, now_ms: int) -> None:
        """Update the replica's progress after its valid fetch request, which started at
        `fetch_offset`."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif NO_OFFSET < self._leader_end_at_contact <= fetch_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_contact_ms)
        # A fetch overtaken by a later one must not lower an acknowledgement.
        self.end_offset = max(self.end_offset, fetch_offset)
        self._leader_end_at_contact = leader_end_offset
        self.last_contact_ms = now_ms


@frozen(kw_only=True)
class ReplicaProgress:
    """Progress of one replica in the reply to DescribeQuorum. Times are monotonic milliseconds, or
    -1 if unknown."""

    key: ReplicaKey
    end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int
    standing: Standing = Standing.FULL


@frozen(kw_only=True)
class QuorumProgress:
    """Reply to DescribeQuorum: the leader, its high watermark, and the progress of each replica.
    Only a leader can create it."""

    leader_id: NodeId
    leader_epoch: Epoch
    high_watermark: Offset
    voters: tuple[ReplicaProgress, ...]
    observers: tuple[ReplicaProgress, ...]


def majority_value(values: Iterable[int], majority_count: int) -> int:
    """Return the highest number that at least `majority_count` of the numbers in `values` reach or
    exceed."""
    ordered = sorted(values, reverse=True)
    assert 1 <= majority_count <= len(ordered)
    return ordered[majority_count - 1]
