"""Invariants of raft, checked after every step of every replica, under any network and disk faults.

Voter sets may change during a run (KIP-853). A majority is a majority of the voter set that the
leader uses. The sources of the invariants:

- Kafka's simulation: MonotonicHighWatermark, MonotonicEpoch, MajorityReachedHighWatermark,
  SingleLeader, SnapshotAtLogStart, LeaderNeverLoadSnapshot, ConsistentCommittedData;
- the models of KRaft (KIP-853): StatesMatchRoles, NeverTwoLeadersInSameEpoch (SingleLeader),
  LeaderHasAllAckedValues (LeaderCompleteness), AckedValueNotLost, NoLogDivergence (LogMatching);
- the raft paper: LeaderAppendOnly, LogMatching;
- Ottla's own: PersistedBeforeAnswered, OneVotePerEpoch, EpochNeverReused, OneChangeAtATime.

Kafka's simulation checks ConsistentCommittedData at the end of a run. This module checks it as each
offset is committed.
"""

from typing import Protocol

from ottla.jepsen.quorum.memory_log import MemoryEntry
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.raft.effects import Effects, VotersAppend
from ottla.raft.election_state import ElectionState
from ottla.raft.events import Event, RequestReceived
from ottla.raft.messages import VoteRequest, VoteResponse
from ottla.raft.quorum import QuorumCore
from ottla.raft.transitions import Role, Standing
from ottla.raft.voters import QuorumIdentity, ReplicaKey, VoterSet


class WatchedLog(Protocol):
    """The invariant checker's view of a raft replica's log. It can also be read while the replica
    is down."""

    @property
    def start_offset(self) -> Offset:
        """First offset that is still in the log."""
        ...

    @property
    def end_offset(self) -> Offset:
        """Offset after the last entry appended to the log."""
        ...

    @property
    def flushed_offset(self) -> Offset:
        """Offset after the last entry of the log that survives a power cut."""
        ...

    @property
    def voters_offset(self) -> Offset:
        """Offset of the last record with a voter set in the log, or NO_OFFSET if no record has a
        voter set."""
        ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Id of the oldest complete snapshot that is kept, or None if no complete snapshot is
        kept."""
        ...

    def entry(self, offset: int) -> MemoryEntry | None:
        """Return the entry at an offset, from the log or its snapshot, or None if neither has
        it."""
        ...


class _Replica:
    """State of one raft replica as the invariant checker knows it."""

    __slots__ = (
        "epoch",
        "high_watermark",
        "identity",
        "is_incomplete",
        "is_voter",
        "log",
        "matched_end",
        "may_stand",
        "votes",
        "was_leader",
    )

    def __init__(self, identity: QuorumIdentity, log: WatchedLog) -> None:
        self.identity = identity
        self.log = log
        self.is_voter = identity.is_voter
        """True if the replica is a voter in its own log, as of its last step."""
        self.may_stand = identity.is_voter
        """True if the replica may stand for election: it is a voter, or it does not know that the
        record of its removal from the voters is committed."""
        self.is_incomplete = False
        """True if the replica's files were damaged, and the replica has not caught up since."""
        self.epoch = Epoch(0)
        self.high_watermark = Offset(0)
        self.matched_end = Offset(0)
        self.votes: dict[Epoch, ReplicaKey] = {}
        self.was_leader = False


class Invariants:
    """Checker of raft's invariants with knowledge of all replicas: the leader of each epoch, and
    all committed entries."""

    __slots__ = (
        "_committed_in",
        "_leaders_ends",
        "_lost_disk_count",
        "_replicas",
        "_voters",
        "_voters_in_use",
        "_written",
        "committed",
        "leaders",
    )

    def __init__(self) -> None:
        self.leaders: dict[Epoch, NodeId] = {}
        self.committed: list[MemoryEntry] = []
        self._committed_in: list[Epoch] = []
        """For each committed offset, the epoch of the leader that committed it."""
        self._replicas: dict[NodeId, _Replica] = {}
        self._lost_disk_count = 0
        self._voters: VoterSet | None = None
        """The last committed voter set of the quorum, or None if none is committed."""
        self._voters_in_use: VoterSet | None = None
        """Voter set of which a majority had the last committed entry. The record of this set need
        not be committed: two consecutive voter sets always share a majority."""
        self._written: dict[tuple[int, Epoch], tuple[MemoryEntry, Epoch]] = {}
        """Log entries by (offset, epoch). A replica's entry with this offset and epoch must equal
        the stored entry, and its previous entry must have the stored epoch."""
        self._leaders_ends: dict[Epoch, tuple[Offset, MemoryEntry | None]] = {}

    # --- notifications ------------------------------------------------------------------------

    def watch(self, identity: QuorumIdentity, log: WatchedLog) -> None:
        """Start to check the invariants of a replica. If a replica with this id is already being
        checked, it restarts with a new disk."""
        known = self._replicas.get(identity.node_id)
        if known is not None and (known.is_voter or self._is_counted(known.identity.key)):
            self._lost_disk_count += 1
        if self._voters is None:
            self._voters = identity.voters
        self._replicas[identity.node_id] = _Replica(identity, log)

    def _is_counted(self, key: ReplicaKey) -> bool:
        sets = (self._voters, self._voters_in_use)
        return any(voters is not None and voters.is_voter(key) for voters in sets)

    def forget_volatile(self, node_id: NodeId) -> None:
        """Reset the state of a replica that a crash loses: its high watermark, its leadership, and
        the checked part of its log. Its epoch is kept."""
        replica = self._replicas[node_id]
        replica.high_watermark = Offset(0)
        replica.matched_end = Offset(0)
        replica.was_leader = False

    def note_damage(self, node_id: NodeId, *, has_forgotten: bool) -> None:
        """Accept that a stopped voter has lost entries. With `has_forgotten`, accept that it may
        also have lost its vote."""
        replica = self._replicas[node_id]
        replica.is_incomplete = True
        replica.matched_end = Offset(0)
        if has_forgotten:
            replica.epoch = Epoch(0)

    def check(
        self,
        node_id: NodeId,
        core: QuorumCore,
        log: WatchedLog,
        persisted: ElectionState | None,
        event: Event,
        effects: Effects,
    ) -> None:
        """Check all invariants for one replica directly after it has performed the effects of an
        event."""
        replica = self._replicas[node_id]
        replica.identity, replica.is_voter = core.identity, core.identity.is_voter
        replica.may_stand = replica.is_voter or log.voters_offset >= core.high_watermark
        if replica.is_incomplete and core.standing is Standing.FULL:
            replica.is_incomplete = False
        if effects.role_change is not None or effects.persist_election is not None:
            self._check_election(replica, core, persisted)
        if effects.replies and isinstance(event, RequestReceived):
            self._check_vote(replica, persisted, event, effects)
        end_offset = log.end_offset
        if end_offset != replica.matched_end or effects.append:
            self._check_log_matching(replica, log)
        # A leader that was removed resigns in the step that commits its removal.
        is_leaders_step = core.is_leader or replica.was_leader
        if core.is_leader:
            self._check_leader(replica, core, log, effects)
        else:
            replica.was_leader = False
        if core.high_watermark != replica.high_watermark:
            self._check_committed(replica, core, log, is_leaders_step)
        start_offset = log.start_offset
        if start_offset > 0:
            earliest = log.earliest_snapshot_id
            assert earliest is not None, f"SnapshotAtLogStart: {node_id} has none"
            # It may be newer only while the log below it is being deleted.
            assert earliest.offset >= start_offset, (
                f"SnapshotAtLogStart: the log of {node_id} begins at {start_offset}, not {earliest}"
            )

    def check_end(self) -> None:
        """Check the final state of the quorum: the invariants AckedValueNotLost and
        ConsistentCommittedData."""
        voters = self._voters_in_use or self._voters
        assert voters is not None
        for offset, entry in enumerate(self.committed):
            holder_count = self._lost_disk_count
            for replica in self._replicas.values():
                found = replica.log.entry(offset)
                is_bound = offset < replica.high_watermark
                assert found == entry or not is_bound, (
                    f"ConsistentCommittedData: {replica.identity.node_id} has {found} at {offset}, "
                    f"not {entry}"
                )
                is_durable = offset < replica.log.flushed_offset
                is_held = replica.is_incomplete or (is_durable and found == entry)
                holder_count += voters.is_voter(replica.identity.key) and is_held
            assert holder_count >= voters.majority_count, (
                f"AckedValueNotLost: {holder_count} voters hold {entry} at {offset}"
            )

    # --- elections ----------------------------------------------------------------------------

    def _check_election(
        self, replica: _Replica, core: QuorumCore, persisted: ElectionState | None
    ) -> None:
        node_id, epoch = replica.identity.node_id, core.epoch
        assert epoch >= replica.epoch, f"MonotonicEpoch: {node_id} went {replica.epoch} -> {epoch}"
        replica.epoch = epoch
        known = ElectionState() if persisted is None else persisted
        assert known.epoch == epoch, (
            f"MonotonicEpoch: {node_id} is in {epoch}, its file says {known.epoch}"
        )
        if known.voted is not None:
            before = replica.votes.setdefault(epoch, known.voted)
            assert before == known.voted, (
                f"OneVotePerEpoch: {node_id} voted for {before.id} and {known.voted.id} in {epoch}"
            )
        _check_role(replica, core, known)

    def _check_vote(
        self,
        replica: _Replica,
        persisted: ElectionState | None,
        event: RequestReceived,
        effects: Effects,
    ) -> None:
        """Check PersistedBeforeAnswered (a granted vote is in the `quorum-state` file) and
        OneVotePerEpoch."""
        request = event.request
        for reply in effects.replies:
            response = reply.response
            if not isinstance(response, VoteResponse) or not response.vote_granted:
                continue
            assert isinstance(request, VoteRequest)
            known = ElectionState() if persisted is None else persisted
            assert known.epoch >= response.leader_epoch, (
                f"PersistedBeforeAnswered: a vote of {response.leader_epoch} rests on {known}"
            )
            if not request.pre_vote:
                candidate = request.replica_key
                before = replica.votes.setdefault(request.replica_epoch, candidate)
                assert before == candidate, (
                    f"OneVotePerEpoch: {replica.identity.node_id} votes for {before.id} and "
                    f"{candidate.id} in {request.replica_epoch}"
                )

    def _check_leader(
        self, replica: _Replica, core: QuorumCore, log: WatchedLog, effects: Effects
    ) -> None:
        node_id, epoch = replica.identity.node_id, core.epoch
        if not replica.was_leader:
            replica.was_leader = True
            leader = self.leaders.setdefault(epoch, node_id)
            assert leader == node_id, f"SingleLeader: {leader} and {node_id} lead {epoch}"
            for offset, entry in enumerate(self.committed):
                # A leader elected late may lack entries that a later epoch has committed meanwhile.
                is_there = self._committed_in[offset] >= epoch or log.entry(offset) == entry
                assert is_there, f"LeaderCompleteness: {node_id} lacks {offset} in {epoch}"
        assert effects.snapshot_chunk is None, f"LeaderNeverLoadSnapshot: {node_id} does"
        for append in effects.append:
            if isinstance(append, VotersAppend):
                self._check_change(replica, append.voters)
        end_offset, last = self._leaders_ends.get(epoch, (Offset(0), None))
        if log.end_offset == end_offset and not effects.append:
            return
        assert log.end_offset >= end_offset, f"LeaderAppendOnly: {node_id} cut its log"
        if end_offset > 0:
            assert log.entry(end_offset - 1) == last, f"LeaderAppendOnly: {node_id} wrote again"
        self._leaders_ends[epoch] = (log.end_offset, log.entry(log.end_offset - 1))

    def _check_change(self, leader: _Replica, voters: VoterSet) -> None:
        """Check OneChangeAtATime: the previous voter set is committed, and the new one differs from
        it by one voter."""
        before = self._voters
        assert before is not None
        added = [voter for voter in voters if not before.is_voter(voter.key)]
        removed = [voter for voter in before if not voters.is_voter(voter.key)]
        assert len(added) + len(removed) <= 1, (
            f"OneChangeAtATime: {leader.identity.node_id} turns {before.ids} into {voters.ids}"
        )

    # --- logs ---------------------------------------------------------------------------------

    def _check_log_matching(self, replica: _Replica, log: WatchedLog) -> None:
        """Check LogMatching for the entries that the last step appended to a replica's log. By
        induction, if two logs have an equal entry, all entries below it are equal as well."""
        end_offset = log.end_offset
        start = max(log.start_offset, min(replica.matched_end, end_offset))
        before = log.entry(start - 1) if start > 0 else None
        for offset in range(start, end_offset):
            entry = log.entry(offset)
            assert entry is not None
            found = (entry, Epoch(0) if before is None else before.epoch)
            if entry.is_leader_change:
                assert before is None or before.epoch < entry.epoch, (
                    f"EpochNeverReused: {replica.identity.node_id} opens {entry.epoch} again"
                )
            known = self._written.setdefault((offset, entry.epoch), found)
            assert known == found, (
                f"LogMatching: {replica.identity.node_id} has {found} at {offset}, not {known}"
            )
            before = entry
        replica.matched_end = end_offset

    def _check_committed(
        self, replica: _Replica, core: QuorumCore, log: WatchedLog, is_leaders: bool
    ) -> None:
        node_id, before, now = replica.identity.node_id, replica.high_watermark, core.high_watermark
        assert now >= before, f"MonotonicHighWatermark: {node_id} went {before} -> {now}"
        assert now <= log.end_offset, (
            f"MajorityReachedHighWatermark: {node_id} commits {now}, its log ends at "
            f"{log.end_offset}"
        )
        if is_leaders:
            self._check_majority(replica, now)
        for offset in range(before, now):
            entry = log.entry(offset)
            assert entry is not None
            if offset == len(self.committed):
                self.committed.append(entry)
                self._voters = entry.voters or self._voters
                self._committed_in.append(core.epoch)
            assert self.committed[offset] == entry, (
                f"ConsistentCommittedData: {node_id} has {entry} at {offset}, "
                f"{self.committed[offset]} was committed"
            )
        replica.high_watermark = now

    def _check_majority(self, leader: _Replica, high_watermark: Offset) -> None:
        voters = self._voters_in_use = leader.identity.voters
        if len(self._replicas) < voters.majority_count:
            return  # a test sends the others' messages
        last = leader.log.entry(high_watermark - 1)
        count = self._lost_disk_count
        for replica in self._replicas.values():
            log = replica.log
            if replica.is_incomplete:
                count += 1
            elif voters.is_voter(replica.identity.key) and log.flushed_offset >= high_watermark:
                count += log.entry(high_watermark - 1) == last
        assert count >= voters.majority_count, (
            f"MajorityReachedHighWatermark: {count} voters have flushed up to {high_watermark}, "
            f"which {leader.identity.node_id} commits"
        )


def _check_role(replica: _Replica, core: QuorumCore, known: ElectionState) -> None:
    """Check StatesMatchRoles: the replica's role agrees with the election state in its
    `quorum-state` file."""
    own, role, leader_id = replica.identity.key, core.role, core.leader_id
    match role:
        case Role.LEADER:
            is_sound = leader_id == known.leader_id == own.id and known.voted == own
        case Role.RESIGNED:
            is_sound = leader_id is None and known.leader_id == own.id
        case Role.CANDIDATE:
            is_sound = leader_id is None and known.leader_id is None and known.voted == own
        case Role.FOLLOWER:
            is_sound = leader_id is not None and leader_id == known.leader_id != own.id
        case _:
            is_sound = leader_id is None or leader_id == known.leader_id
    assert is_sound, f"StatesMatchRoles: {own.id} is {role.value} of {leader_id}, file: {known}"
    # A leader that was removed leads until its removal is committed, and resigns.
    is_voters_only = role in (Role.PROSPECTIVE, Role.CANDIDATE)
    assert replica.may_stand or not is_voters_only, f"StatesMatchRoles: {own.id} must not vote"
