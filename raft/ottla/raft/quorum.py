"""The quorum core: the reaction of one replica of the metadata log to each event.

Pure: an event in, effects out; time and randomness are arguments. The core never reads a clock,
never writes, never sends. Invariants: OneLeaderPerEpoch, MonotonicEpoch, MonotonicHighWatermark,
ConsistentCommittedData, PersistedBeforeAnswered.

**The driver's duties.** One task owns the core. It calls `performer.take_step` with one event at a
time and the monotonic clock. The performer then calls the driver's ports in this order:

1. *Append.* Truncate the log to `truncate_to`; append every batch of `append` in order (the driver
   patches base offset, leader epoch and wall-clock timestamp of leader appends); write
   `snapshot_chunk`, and install the snapshot if it was the last chunk.

2. *Fsync.* Write `persist_election` to `quorum-state`, atomically and durably, before continuing.
   If `flush` is set, flush the log: here, or in a background task so that one fsync covers many
   appends. Each finished fsync becomes a `LogFlushed` event. Until then the core counts none of
   those bytes: neither in the high watermark, nor as the follower's acknowledgement.

3. *Send.* Send `replies` (after the reads that they request), then `messages`. Each message ends
   with exactly one `ResponseReceived` or `RequestFailed`.

4. *Apply.* If `high_watermark` changed, pass the newly committed entries to the state machine. Then
   report `role_change` to the application.

Steps 1 and 2, except for the flush, end before the next event is processed. `Tick` is due no later
than `next_wake_ms`; an early or additional one does no harm.

**A crash** may happen between any two of these steps. After a crash before *Fsync*, the log's last
epoch may be ahead of `quorum-state`, and the core starts from the higher epoch. After a crash
before *Send*, the vote is kept and the sender repeats its request. Unflushed bytes may be lost, but
no replica has counted them as acknowledged. An OSError in 1 or 2 ends the process: a replica that
cannot make its promises durable must not answer.
"""

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft import answers
from ottla.raft.candidate import Candidate, Prospective
from ottla.raft.effects import Effects, LeaderAppend, RoleChange
from ottla.raft.election_state import ElectionState
from ottla.raft.events import (
    AppendRequested,
    Event,
    LeaderRefused,
    LogFlushed,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    Tick,
)
from ottla.raft.follower import Follower
from ottla.raft.leader import Leader
from ottla.raft.log_view import LogView
from ottla.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    DescribeReplicaRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    Response,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoteRequest,
)
from ottla.raft.progress import QuorumProgress
from ottla.raft.replica import Replica
from ottla.raft.resigned import Resigned
from ottla.raft.role_state import RoleState
from ottla.raft.transitions import LEGAL, OBSERVER_ROLES, ROLES_OF, Role, Standing
from ottla.raft.unattached import Unattached
from ottla.raft.voters import QuorumIdentity, ReplicaKey, VoterEndpoint

ROLES_PER_STEP_MAX = 8
"""Maximum number of role changes in one step of the quorum core. A quorum of one voter passes
through four roles in its first step; more than the maximum means a cycle."""


class QuorumCore:
    """The core of one replica of the metadata log, voter or observer. It decides the reaction to
    each event."""

    __slots__ = ("_must_be_succeeded", "_now_ms", "_persisted", "_replica", "_state")

    def __init__(
        self,
        config: QuorumConfig,
        identity: QuorumIdentity,
        log: LogView,
        election: ElectionState | None,
        rng: Rng,
        now_ms: int,
    ) -> None:
        """Create the core from the contents of the replica's files. It takes no action before the
        first `Tick` event."""
        self._persisted = ElectionState() if election is None else election
        self._replica = Replica(config, identity, log, self._persisted, rng, now_ms)
        self._now_ms = now_ms
        self._must_be_succeeded = False
        """True if this node was the leader when its shutdown was requested. The shutdown then waits
        until another node has won an election."""
        self._state: RoleState = self._first_role(now_ms)

    def step(self, event: Event, now_ms: int) -> Effects:
        """Process one event and return its effects, in the order in which they must be performed.

        Raises RefusedError for an AppendRequested that this replica must not append; nothing has
        changed in that case.
        """
        assert now_ms >= self._now_ms, "a monotonic clock went back"
        if isinstance(event, AppendRequested):
            self._check_may_append(event)
        self._now_ms = now_ms
        replica = self._replica
        replica.out = out = Effects()
        before = (self._state.role, replica.epoch, self._state.leader_id)
        if replica.adopt_voters():
            self._on_voters_changed(now_ms)
        if isinstance(event, RequestReceived):
            self._resign_after_suspension(now_ms)
        self._take_in(event, now_ms)
        self._poll(now_ms)
        replica.note_membership()
        if replica.has_changed_since(self._persisted):
            self._persisted = out.persist_election = replica.election_state
        after = (self._state.role, replica.epoch, self._state.leader_id)
        if after != before:
            out.role_change = RoleChange(role=after[0], epoch=after[1], leader_id=after[2])
        out.next_wake_ms = replica.wake_ms
        return out

    def allow_voter_changes(self) -> None:
        """Allow changes of the voter set from the next step on. The cluster's metadata level has
        been raised to a level at which all releases read voter sets from the log."""
        self._replica.allow_voter_changes()

    @property
    def role(self) -> Role:
        """This replica's role in its current epoch."""
        return self._state.role

    @property
    def epoch(self) -> Epoch:
        """Highest epoch of the quorum that this replica has seen."""
        return self._replica.epoch

    @property
    def leader_id(self) -> NodeId | None:
        """Node id of the current epoch's leader, or None if the leader is unknown or has
        resigned."""
        return self._state.leader_id

    @property
    def standing(self) -> Standing:
        """Standing of this voter: FULL, or a lower value after a loss of votes or of acknowledged
        entries."""
        return self._replica.standing

    @property
    def identity(self) -> QuorumIdentity:
        """Identity of this replica, with the voter set that was in effect at the last step."""
        return self._replica.identity

    @property
    def is_leader(self) -> bool:
        """True if this replica leads the current epoch."""
        return isinstance(self._state, Leader)

    @property
    def epoch_start_offset(self) -> Offset | None:
        """Offset of the leader's LeaderChange record if this replica leads, otherwise None. Once
        the high watermark is above it, all earlier entries are committed."""
        return self._state.epoch_start_offset if isinstance(self._state, Leader) else None

    @property
    def high_watermark(self) -> Offset:
        """Offset below which all entries are committed; it starts at the latest snapshot's end."""
        return self._replica.high_watermark

    @property
    def election_state(self) -> ElectionState:
        """Contents of `quorum-state` after the effects of the last step are performed."""
        return self._persisted

    @property
    def is_handed_over(self) -> bool:
        """True if no other node needs this node after the event ShutdownRequested.

        A leader's successor may need this node's vote. The node therefore continues until the
        successor has won the election, or until too few voters remain.
        """
        replica = self._replica
        if not replica.is_shutting_down:
            return False
        if not self._must_be_succeeded or isinstance(self._state, Follower):
            return True
        lost_count = sum(replica.requests.is_failing(peer.id) for peer in replica.peers)
        voters = replica.identity.voters
        return len(voters) - lost_count < voters.majority_count

    def describe(self) -> QuorumProgress | None:
        """Return the reply to DescribeQuorum as of the last step. Returns None if this replica is
        not the leader."""
        if not isinstance(self._state, Leader):
            return None
        return self._state.describe(self._replica, self._now_ms)

    # --- events -----------------------------------------------------------------------------

    def _take_in(self, event: Event, now_ms: int) -> None:
        match event:
            case RequestReceived():
                self._on_request(event, now_ms)
            case ResponseReceived():
                self._on_response(event, now_ms)
            case Tick() | LogFlushed():
                pass  # `_poll` below uses the time and the log
            case RequestFailed():
                outgoing = self._replica.requests.take(event.request_id)
                if outgoing is not None:
                    self._replica.requests.back_off(outgoing.to, now_ms)
                    if isinstance(self._state, Leader):
                        self._state.on_no_response(self._replica, outgoing)
            case LeaderRefused():
                is_of_today = (event.leader_id, event.epoch) == (self.leader_id, self.epoch)
                if isinstance(self._state, Follower) and is_of_today:
                    self._state.on_leader_refused(self._replica, now_ms)
            case AppendRequested():
                assert isinstance(self._state, Leader)
                append = LeaderAppend(leader_epoch=event.epoch, records=event.records)
                self._replica.out.append.append(append)
                self._replica.out.flush = True
                self._state.on_appended(self._replica)
            case ResignRequested():
                if isinstance(self._state, Leader) and event.epoch == self.epoch:
                    self._become(Role.RESIGNED, now_ms)
            case ShutdownRequested():
                self._replica.is_shutting_down = True
                if isinstance(self._state, Leader):
                    self._become(Role.RESIGNED, now_ms)
                self._must_be_succeeded = isinstance(self._state, Resigned) and not self._is_alone

    def _resign_after_suspension(self, now_ms: int) -> None:
        """Resign if this replica is the leader and has had no fetches from a majority for too long,
        as after a suspension of its process.

        The check precedes the processing of requests that were queued during the suspension. These
        requests do not prove that a majority still follows this leader.
        """
        if isinstance(self._state, Leader) and self._state.has_lost_majority(self._replica, now_ms):
            self._become(Role.RESIGNED, now_ms)

    def _check_may_append(self, event: AppendRequested) -> None:
        assert len(event.records) > 0
        if not isinstance(self._state, Leader) or event.epoch != self.epoch:
            raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _on_request(self, event: RequestReceived, now_ms: int) -> None:
        match event.request:
            case VoteRequest() as request:
                self._on_vote(event.token, request, now_ms)
            case BeginQuorumEpochRequest() as request:
                self._on_begin_quorum_epoch(event.token, request, now_ms)
            case EndQuorumEpochRequest() as request:
                self._on_end_quorum_epoch(event.token, request, now_ms)
            case FetchRequest() as request:
                self._on_fetch(event.token, request, now_ms)
            case FetchSnapshotRequest() as request:
                self._on_fetch_snapshot(event.token, request, now_ms)
            case AddVoterRequest() | RemoveVoterRequest() | UpdateVoterRequest() as request:
                self._on_voter_change(event.token, request, now_ms)
            case DescribeReplicaRequest() as request:
                replica = self._replica
                replica.reply(
                    event.token, answers.describe_replica(replica, self.leader_id, request)
                )

    def _on_response(self, event: ResponseReceived, now_ms: int) -> None:
        replica, response = self._replica, event.response
        outgoing = replica.requests.take(event.request_id)
        if outgoing is None:
            return
        if not answers.is_answer_to(response, outgoing.request):
            replica.requests.back_off(outgoing.to, now_ms)
            return
        state = self._state
        if response.error is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            fault = replica.fault_of_answer(response)
            if fault is not None:
                replica.reject_response(outgoing, fault, now_ms)
                return
        if response.error is ErrorCode.NONE:
            replica.requests.succeeded(outgoing.to)
        if response.error is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._learn(response, now_ms)
            replica.record_epoch_of(outgoing.to)
        if self._state is state:
            state.on_response(replica, outgoing, response, now_ms)

    # --- requests of other replicas -----------------------------------------------------------

    def _on_vote(self, token: int, request: VoteRequest, now_ms: int) -> None:
        replica = self._replica
        error = answers.vote_error(replica, request, now_ms)
        if error is not ErrorCode.NONE:
            replica.reply(token, answers.vote(replica, self.leader_id, error))
            return
        if request.replica_epoch > self.epoch:
            replica.charge_request(request.replica_epoch)
            self._become_unattached(now_ms, epoch=request.replica_epoch)
        is_granted = replica.grants_votes
        is_granted &= replica.is_log_up_to_date(request.last_epoch, request.end_offset)
        if request.pre_vote:
            is_granted &= self._state.grants_pre_votes
        else:
            is_granted &= replica.epoch_leader_id is None
            is_granted &= replica.voted in (None, request.replica_key)
        if is_granted and not request.pre_vote and replica.voted is None:
            replica.vote_for(request.replica_key)
            self._become_unattached(now_ms)
        if isinstance(self._state, Prospective) and not is_granted:
            self._state.on_rival_candidate(request.replica_id)
        replica.reply(token, answers.vote(replica, self.leader_id, is_granted=is_granted))

    def _on_begin_quorum_epoch(
        self, token: int, request: BeginQuorumEpochRequest, now_ms: int
    ) -> None:
        replica = self._replica
        error = answers.begin_error(replica, request, now_ms)
        if error is ErrorCode.NONE:
            replica.charge_request(request.leader_epoch)
            self._follow_or_ignore(
                request.leader_epoch, request.leader_id, request.leader_endpoints, now_ms
            )
        replica.reply(token, answers.begin(replica, self.leader_id, error))

    def _on_end_quorum_epoch(self, token: int, request: EndQuorumEpochRequest, now_ms: int) -> None:
        replica = self._replica
        error = answers.end_error(replica, request, now_ms)
        if error is ErrorCode.NONE:
            replica.charge_request(request.leader_epoch)
            epoch = request.leader_epoch if request.leader_epoch > self.epoch else None
            is_ours = self.leader_id == request.leader_id or replica.epoch_leader_id is None
            if epoch is not None or is_ours:
                pause_ms = answers.succession_pause_ms(replica, request.preferred_candidates)
                self._become_unattached_after_resignation(
                    request.leader_id, epoch, now_ms, pause_ms
                )
        replica.reply(token, answers.end(replica, self.leader_id, error))

    def _on_fetch(self, token: int, request: FetchRequest, now_ms: int) -> None:
        replica = self._replica
        error = answers.fetch_error(replica, self.is_leader, request)
        if error is not ErrorCode.NONE:
            if error is ErrorCode.FENCED_LEADER_EPOCH and isinstance(self._state, Leader):
                self._state.note_standing(replica, request)
            replica.reply(token, answers.fetch(replica, self.leader_id, error))
            return
        assert isinstance(self._state, Leader)
        self._state.on_fetch(replica, token, request, now_ms)

    def _on_fetch_snapshot(self, token: int, request: FetchSnapshotRequest, now_ms: int) -> None:
        replica = self._replica
        error = answers.fetch_error(replica, self.is_leader, request)
        if isinstance(self._state, Leader) and error is ErrorCode.NONE:
            self._state.on_fetch_snapshot(replica, request, now_ms)
        replica.out.replies.append(answers.fetch_snapshot(replica, self.leader_id, token, request))

    def _on_voter_change(self, token: int, request: VoterChangeRequest, now_ms: int) -> None:
        replica = self._replica
        error = answers.change_error(replica, self.is_leader, request)
        if error is not ErrorCode.NONE:
            replica.reply(token, answers.change(replica, self.leader_id, error))
            return
        assert isinstance(self._state, Leader)
        self._state.on_change_request(replica, token, request, now_ms)

    # --- changes of role ----------------------------------------------------------------------

    def _on_voters_changed(self, now_ms: int) -> None:
        """Adapt the role of this replica after the previous step has appended a voter set, or
        truncated one."""
        if isinstance(self._state, Leader):
            self._state.on_voters_changed(self._replica, now_ms)
        elif isinstance(self._state, Prospective | Candidate):
            self._become_unattached(now_ms)  # its ballot is of another set

    def _learn(self, response: Response, now_ms: int) -> None:
        """Adopt the epoch and the leader that another node's response names."""
        epoch, leader_id = response.leader_epoch, response.leader_id
        endpoints = response.leader_endpoints
        if leader_id is not None and self._replica.reachable(leader_id, endpoints) is not None:
            self._follow_or_ignore(epoch, leader_id, endpoints, now_ms)
        elif epoch > self.epoch:
            self._become_unattached(now_ms, epoch=epoch)

    def _follow_or_ignore(
        self,
        epoch: Epoch,
        leader_id: NodeId,
        endpoints: tuple[VoterEndpoint, ...],
        now_ms: int,
    ) -> None:
        """Follow the leader of a higher epoch, or the leader of the current epoch if none was
        known. In all other cases, the call has no effect."""
        replica = self._replica
        is_self = leader_id == replica.identity.node_id
        if epoch > self.epoch and not is_self:
            replica.enter_epoch(epoch)
            self._follow(leader_id, endpoints, now_ms)
        elif epoch > self.epoch:
            # The others know this replica as leader of an epoch that it has forgotten, so it must
            # never vote in it.
            self._become_unattached_after_resignation(leader_id, epoch, now_ms)
        elif epoch == self.epoch and replica.epoch_leader_id is None:
            if is_self:
                replica.set_epoch_leader(leader_id)
            else:
                self._follow(leader_id, endpoints, now_ms)
        elif epoch == self.epoch:
            replica.set_epoch_leader(leader_id, endpoints)  # this call asserts OneLeaderPerEpoch
            is_awaited = isinstance(self._state, Unattached) and self._state.awaits_address
            if is_awaited and not is_self and replica.leader is not None:
                self._follow(leader_id, endpoints, now_ms)

    def _follow(self, leader_id: NodeId, endpoints: tuple[VoterEndpoint, ...], now_ms: int) -> None:
        self._replica.set_epoch_leader(leader_id, endpoints)
        self._change_to(Follower(self._replica, leader_id, now_ms))

    def _become_unattached(self, now_ms: int, *, epoch: Epoch | None = None) -> None:
        """Change to the role Unattached, in a higher `epoch`, or in the current epoch after
        granting a vote. The voter then waits for the result of the election."""
        if epoch is not None:
            self._replica.enter_epoch(epoch)
        pause_ms = 0 if self._is_alone else self._replica.random_election_timeout_ms()
        self._change_to(Unattached(now_ms + pause_ms))

    def _become_unattached_after_resignation(
        self, leader_id: NodeId, epoch: Epoch | None, now_ms: int, pause_ms: int | None = None
    ) -> None:
        """Change to the role Unattached after the leader of the epoch has announced its
        resignation, and wait for an election."""
        replica = self._replica
        if epoch is not None:
            replica.enter_epoch(epoch)
        replica.set_epoch_leader(leader_id)
        if pause_ms is None:
            pause_ms = replica.random_election_timeout_ms()
        self._change_to(Unattached(now_ms + pause_ms))

    def _poll(self, now_ms: int) -> None:
        """Perform the due actions of the current role, and of each role that is entered as a
        result."""
        for _ in range(ROLES_PER_STEP_MAX):
            self._replica.wake_ms = None
            next_role = self._state.poll(self._replica, now_ms)
            if next_role is None:
                return
            self._become(next_role, now_ms)
        raise AssertionError(f"the roles form a cycle at {self._state.role}")

    def _become(self, role: Role, now_ms: int) -> None:
        """Enter a new role because of a timeout or of votes."""
        replica, old = self._replica, self._state
        match role:
            case Role.UNATTACHED:
                self._become_unattached(now_ms)
            case Role.FOLLOWER:
                assert old.leader_id is not None
                self._follow(old.leader_id, (), now_ms)
            case Role.PROSPECTIVE:
                self._change_to(Prospective(replica, now_ms, old.leader_id))
            case Role.CANDIDATE:
                replica.enter_epoch(Epoch(self.epoch + 1))
                replica.vote_for(replica.key)
                self._change_to(Candidate(replica, now_ms))
            case Role.LEADER:
                assert isinstance(old, Candidate)
                assert old.ballot.is_won
                replica.set_epoch_leader(replica.identity.node_id)
                self._change_to(Leader(replica, old.ballot.granting_voters, now_ms))
            case Role.RESIGNED:
                assert isinstance(old, Leader)
                self._change_to(self._resigned(old.preferred_successors(), now_ms))

    def _change_to(self, new: RoleState) -> None:
        """Enter the new role, and drop the requests in flight of the previous role."""
        replica, old = self._replica, self._state
        assert new.role in LEGAL[old.role], f"{old.role} cannot become {new.role}"
        is_leaving = isinstance(old, Leader)  # a leader that was removed still resigns
        may_be_any = replica.is_voter or replica.may_complete_removal
        assert may_be_any or new.role in OBSERVER_ROLES or is_leaving
        assert new.role in ROLES_OF[replica.standing]
        replica.requests.reset()
        self._state = new
        if isinstance(old, Leader):
            refusal = answers.fetch(replica, new.leader_id, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            old.release(replica, refusal)

    def _resigned(self, preferred: tuple[ReplicaKey, ...], now_ms: int) -> Resigned:
        pause_ms = 0 if self._is_alone else self._replica.random_election_timeout_ms()
        return Resigned(self._replica, preferred, now_ms + pause_ms)

    # --- the first role -----------------------------------------------------------------------

    @property
    def _is_alone(self) -> bool:
        """True if this replica is the only voter of its quorum, and waits for no other voter."""
        return self._replica.identity.is_alone

    def _first_role(self, now_ms: int) -> RoleState:
        """Return the role in which this replica starts. It is derived from the contents of the
        replica's files."""
        replica = self._replica
        identity, log = replica.identity, replica.log
        if log.last_epoch > replica.epoch:
            # The log was appended to, and the crash happened before `quorum-state` was written.
            replica.enter_epoch(log.last_epoch)
        leader_id = replica.epoch_leader_id
        if leader_id == identity.node_id and replica.votes:
            return self._resigned(tuple(voter.key for voter in replica.peers), now_ms)
        if leader_id != identity.node_id and replica.leader is not None:
            assert leader_id is not None
            return Follower(replica, leader_id, now_ms)
        is_fresh = replica.epoch == 0 and log.end_offset == 0
        # One voter must stand for election first. A new quorum has no leader that this voter could
        # disturb.
        is_first = is_fresh and identity.node_id in identity.voters.ids[:1]
        at_once = self._is_alone or is_first
        pause_ms = 0 if at_once else replica.random_election_timeout_ms()
        return Unattached(
            now_ms + pause_ms, awaits_address=leader_id not in (None, identity.node_id)
        )
