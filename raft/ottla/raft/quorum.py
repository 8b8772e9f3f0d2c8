"""The quorum core: what one replica of the metadata log does about each thing that happens.

Pure: an event in, effects out; time and chance are arguments.  It never reads a clock, never
writes, never sends.  Invariants: OneLeaderPerEpoch, MonotonicEpoch, MonotonicHighWatermark,
ConsistentCommittedData, PersistedBeforeAnswered.

**The driver's duties.**  One task owns the core.  It takes one event at a time, calls
`step(event, now_ms)` with the monotonic clock, and performs the effects in this order:

1. *Append.*  Truncate the log to `truncate_to`; append every batch of `append` in order (leader
   appends get their base offset, leader epoch and wall-clock timestamp from the driver); write
   `snapshot_chunk`, and install the snapshot if it was the last chunk.
2. *Fsync.*  Write `persist_election` to `quorum-state`, atomically and durably, before going on.
   If `flush` is set, have the log flushed: here, or in a background task so that one fsync covers
   many appends.  Each finished fsync becomes a `Flushed` event.  Until then the core counts none of
   those bytes: not in the high watermark, not as the follower's acknowledgement.
3. *Send.*  Answer `replies` (reading what `read` asks for), then send `messages`.  Each message
   ends as exactly one `ResponseReceived` or `RequestFailed`.
4. *Apply.*  If `high_watermark` moved, hand the state machine what is now committed.  Then tell the
   application of `role_change`.

Steps 1 and 2, the flush apart, end before the next event is stepped.  `Tick` is due at the latest
at `next_wake_ms`; an early or spare one does no harm.

**A crash** may come between any two of these.  Appended but not persisted: the log's last epoch may
be ahead of `quorum-state`, and the core starts from the higher of the two.  Persisted but not sent:
the vote is kept and the asker asks again.  Whatever was not flushed may be gone: nobody counted it.
An OSError in 1 or 2 ends the process: a replica that cannot remember must not answer.
"""

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Effects
from ottla.raft.election_state import ElectionState
from ottla.raft.events import Event
from ottla.raft.log_view import LogView
from ottla.raft.transitions import Role
from ottla.raft.voters import QuorumIdentity


class QuorumCore:
    """One replica of the quorum, voter or observer."""

    def __init__(
        self,
        config: QuorumConfig,
        identity: QuorumIdentity,
        log: LogView,
        election: ElectionState | None,
        rng: Rng,
        now_ms: int,
    ) -> None:
        raise NotImplementedError

    def step(self, event: Event, now_ms: int) -> Effects:
        """Take in one event and return what must be done about it."""
        raise NotImplementedError

    @property
    def role(self) -> Role:
        """This replica's role in `epoch`."""
        raise NotImplementedError

    @property
    def epoch(self) -> Epoch:
        """The highest epoch seen."""
        raise NotImplementedError

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of `epoch`, if there is one that is known and has not resigned."""
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        """Say whether this replica leads `epoch`."""
        raise NotImplementedError

    @property
    def epoch_start_offset(self) -> Offset | None:
        """A leader's LeaderChange offset; once the high watermark is past it, its log is whole."""
        raise NotImplementedError

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed; starts at the latest snapshot's end."""
        raise NotImplementedError

    @property
    def is_handed_over(self) -> bool:
        """After ShutdownRequested: nobody waits for this node any more."""
        raise NotImplementedError
