"""State shared by all roles of one replica: its identity, its log, the leader and vote of the
current epoch, and the effects of the step.

`Replica` is a mutable class owned by one `QuorumCore`. Invariants: MonotonicEpoch,
MonotonicHighWatermark, and this replica's part of OneLeaderPerEpoch: in one epoch it votes at most
once and accepts at most one leader.
"""

from dataclasses import replace

from ottla.model.buggify import buggify
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Effects, OutgoingRequest, RejectedResponse, Reply
from ottla.raft.election_state import NO_ELECTION_YET, ElectionState
from ottla.raft.log_view import LogView
from ottla.raft.messages import FetchRequest, Request, Response
from ottla.raft.requests import Requests
from ottla.raft.transitions import STANDING_LEGAL, Standing
from ottla.raft.trust import EPOCH_JUMP_MAX, EPOCH_MAX, EpochCredit
from ottla.raft.voters import QuorumIdentity, ReplicaKey, Voter, VoterEndpoint


class Replica:
    """The state of a replica that all its roles share. It is an argument of every method of a
    role."""

    __slots__ = (
        "_credit",
        "_initial_voters",
        "config",
        "damage_epoch",
        "epoch",
        "epoch_leader_id",
        "high_watermark",
        "identity",
        "is_shutting_down",
        "is_voter",
        "key",
        "leader_endpoints",
        "log",
        "out",
        "peers",
        "requests",
        "rng",
        "standing",
        "unheard",
        "voted",
        "wake_ms",
        "was_voter",
    )

    def __init__(
        self,
        config: QuorumConfig,
        identity: QuorumIdentity,
        log: LogView,
        election: ElectionState,
        rng: Rng,
        now_ms: int,
    ) -> None:
        self._credit = EpochCredit(now_ms)
        self.config = config
        self._initial_voters = identity.voters
        if log.voters is not None:
            identity = replace(identity, voters=log.voters)
        self.identity = identity
        """Identity of this replica, with the latest voter set of its log."""
        self.key = identity.key
        self.peers = identity.peers
        """The voters of the latest voter set that are other nodes."""
        self.is_voter = identity.is_voter
        """True if this replica is in the latest voter set of its log."""
        self.was_voter = election.was_voter
        """True if this controller was at any time in a committed voter set."""
        self.log = log
        self.rng = rng
        self.requests = Requests(config.retry_backoff_ms)
        self.out = Effects()
        self.wake_ms: int | None = None
        self.is_shutting_down = False
        self.epoch = election.epoch
        self.epoch_leader_id = election.leader_id
        """Node id of the leader of `epoch`, or None if unknown. It is kept even after that leader
        resigned."""
        self.leader_endpoints: tuple[VoterEndpoint, ...] = ()
        """Endpoints of the epoch's leader, as messages name them. Needed if the leader is not in
        the voter set of this log."""
        self.voted = election.voted
        """Replica that received this replica's vote in `epoch`, or None if this replica has not
        voted."""
        self.standing = election.standing
        """Standing of this replica: FULL, or a lower value after a loss of votes or of acknowledged
        entries. Always FULL for an observer."""
        self.damage_epoch = election.epoch
        """Highest epoch in which leaders may count acknowledgements of entries that this replica
        has lost since. Used only while this replica's standing is not FULL."""
        self.unheard: set[NodeId] = set()
        """Ids of the voters from which a replica that lost its vote (standing AMNESIAC) still needs
        a response. Empty for every other replica."""
        if self.standing is Standing.AMNESIAC:
            self.unheard = {peer.id for peer in self.peers}
        snapshot_id = log.latest_snapshot_id
        self.high_watermark = Offset(0) if snapshot_id is None else snapshot_id.offset

    @property
    def may_campaign(self) -> bool:
        """True if this replica may stand for election. Always False in the highest possible
        epoch."""
        is_candidate = self.votes or self.may_complete_removal
        return is_candidate and not self.is_shutting_down and self.epoch < EPOCH_MAX

    @property
    def may_complete_removal(self) -> bool:
        """True if this replica was a voter, its log removes it from the voters, and it does not
        know whether the removal is committed.

        This replica may be the only one with the record of its removal, for example if a leader
        removed itself and crashed. The other voters may then need its vote, which it cannot grant
        because its log is longer. It therefore stands for election itself, and counts the votes of
        the new set (raft dissertation, section 4.2.2). Kafka's controllers do not do this, and can
        then remain without a leader permanently.
        """
        return (
            self.was_voter
            and not self.is_voter
            and self.standing is Standing.FULL
            and self.log.voters_offset >= self.high_watermark
        )

    @property
    def votes(self) -> bool:
        """True if this replica is a voter with standing FULL. Other replicas do not vote."""
        return self.is_voter and self.standing is Standing.FULL

    @property
    def grants_votes(self) -> bool:
        """True if this replica may grant its vote.

        A controller that is missing from the voter set in its own log also grants votes. Its log
        may lack the record that makes it a voter, and the candidate may need the vote to commit
        that record (KIP-853).
        """
        return self.identity.keeps_votes and self.standing is Standing.FULL

    def adopt_voters(self) -> bool:
        """Adopt the latest voter set in the log. Returns True if the set has changed."""
        # If the first set of the log is truncated, the voters are those of the startup again.
        voters = self.log.voters or self._initial_voters
        if voters is self.identity.voters or voters == self.identity.voters:
            return False
        self.identity = replace(self.identity, voters=voters)
        self.peers = self.identity.peers
        self.is_voter = self.identity.is_voter
        return True

    def allow_voter_changes(self) -> None:
        """Allow changes of the voter set permanently."""
        if self.identity.are_voters_fixed:
            self.identity = replace(self.identity, are_voters_fixed=False)

    def note_membership(self) -> None:
        """Record that this controller is or was in a committed voter set.

        This may happen late: the controller may read the record of its addition when its removal is
        already committed.
        """
        if self.was_voter or not self.identity.is_controller:
            return
        is_committed = self.log.voters_offset < self.high_watermark
        self.was_voter = (self.is_voter and is_committed) or self.log.has_voter_below(
            self.key, self.high_watermark
        )

    @property
    def is_added_in_log(self) -> bool:
        """True if a voter set in this replica's log or snapshot includes it, committed or not. The
        replica may read its addition and its removal before it knows that both are committed."""
        return self.log.has_voter_below(self.key, self.log.end_offset)

    @property
    def leader(self) -> Voter | None:
        """Leader of the epoch with its endpoints, or None if the leader or its address is
        unknown."""
        if self.epoch_leader_id is None:
            return None
        return self.reachable(self.epoch_leader_id, self.leader_endpoints)

    def reachable(self, node_id: NodeId, endpoints: tuple[VoterEndpoint, ...]) -> Voter | None:
        """Return a voter by its id. If the voter set lacks this id, return a voter with the given
        endpoints, or None if there are no endpoints."""
        voter = self.identity.voters.get(node_id)
        if voter is None and endpoints and node_id >= 0:
            return Voter(id=node_id, endpoints=endpoints)
        return voter

    def raise_standing(self, standing: Standing) -> None:
        """Raise this voter's standing (AMNESIAC, CATCHING_UP or FULL) to a higher one."""
        assert standing in STANDING_LEGAL[self.standing], f"{self.standing} cannot be {standing}"
        self.standing = standing

    def record_epoch_of(self, voter_id: NodeId) -> None:
        """Record that a voter has reported its epoch, and that this epoch is not above this
        replica's epoch.

        This replica may have lost its vote. The candidate of a forgotten vote had already entered
        the vote's epoch when it requested the vote. Once every voter has reported its epoch after
        the loss, no forgotten vote can be in an epoch above this replica's epoch.
        """
        if self.standing is Standing.AMNESIAC:
            self.unheard.discard(voter_id)
            if not self.unheard:
                self.damage_epoch = self.epoch
                self.raise_standing(Standing.CATCHING_UP)

    @property
    def election_state(self) -> ElectionState:
        """The contents of `quorum-state`: epoch, leader, vote, and standing (whether the voter has
        lost votes or acknowledged entries)."""
        return ElectionState(
            epoch=self.epoch,
            leader_id=self.epoch_leader_id,
            voted=self.voted,
            standing=self.standing,
            was_voter=self.was_voter,
        )

    def has_changed_since(self, known: ElectionState) -> bool:
        """Return whether the current contents of `quorum-state` differ from `known`, the contents
        that were last written."""
        return (
            self.epoch != known.epoch
            or self.epoch_leader_id != known.leader_id
            or self.voted != known.voted
            or self.standing is not known.standing
            or self.was_voter != known.was_voter
        )

    @property
    def acknowledged_offset(self) -> Offset:
        """End offset of the entries that this replica acknowledges. For a controller it is the
        flushed end, because a controller may become a voter at any time. Other observers need not
        flush."""
        return self.log.flushed_offset if self.identity.keeps_votes else self.log.end_offset

    @property
    def is_log_changing(self) -> bool:
        """True if the current step changes the log, so that LogView is out of date until the next
        step."""
        out = self.out
        return bool(out.append) or out.truncate_to is not None or out.snapshot_chunk is not None

    def enter_epoch(self, epoch: Epoch) -> None:
        """Enter a higher epoch, in which no leader is known and no vote is granted yet."""
        assert epoch > self.epoch, f"MonotonicEpoch: {self.epoch} cannot be followed by {epoch}"
        self.epoch = epoch
        self.epoch_leader_id = None
        self.leader_endpoints = ()
        self.voted = None

    def may_be_raised_to(self, epoch: int, now_ms: int) -> bool:
        """Return whether another node's request may raise this replica's epoch to `epoch`. The
        bound protects against hostile senders."""
        rise = max(0, epoch - self.epoch)
        return epoch <= EPOCH_MAX and self._credit.is_enough(rise, now_ms)

    def charge_request(self, epoch: int) -> None:
        """Charge the increase of the epoch that a request causes to the `EpochCredit`. Call this
        before the epoch changes."""
        self._credit.spend(max(0, epoch - self.epoch))

    def contradicts(self, leader_id: NodeId | None, epoch: int) -> bool:
        """Return whether a message of another node names a different leader for the current epoch
        than this replica knows."""
        return (
            leader_id is not None
            and epoch == self.epoch
            and self.epoch_leader_id not in (None, leader_id)
        )

    def fault_of_answer(self, response: Response) -> str | None:
        """Return the reason why the epoch in another node's response is impossible, or None if it
        is plausible."""
        epoch, leader_id = response.leader_epoch, response.leader_id
        if epoch > min(EPOCH_MAX, self.epoch + EPOCH_JUMP_MAX):
            return f"it names epoch {epoch}, and this node's is {self.epoch}"
        if leader_id is None or self.reachable(leader_id, response.leader_endpoints) is None:
            return None
        # A damaged voter may have led this epoch, and may remember only its vote for itself.
        is_candidate = (
            self.standing is Standing.FULL
            and self.voted == self.identity.key
            and self.epoch_leader_id is None
        )
        if leader_id == self.identity.node_id and epoch == self.epoch and is_candidate:
            return f"it names this node as leader of epoch {epoch}, in which it is only a candidate"
        if epoch == 0 or self.contradicts(leader_id, epoch):
            return (
                f"OneLeaderPerEpoch: it names {leader_id} as leader of epoch {epoch}, and this"
                f" node knows {self.epoch_leader_id}"
            )
        return None

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Record this replica's vote for a candidate in the current epoch. A replica votes at most
        once per epoch."""
        assert self.voted is None or self.voted == candidate
        assert self.epoch_leader_id is None
        self.voted = candidate

    def set_epoch_leader(
        self, leader_id: NodeId, endpoints: tuple[VoterEndpoint, ...] = ()
    ) -> None:
        """Record the leader of this epoch, and its endpoints if a message has named them."""
        assert self.epoch_leader_id in (None, leader_id), (
            f"OneLeaderPerEpoch: {self.epoch_leader_id} and {leader_id} lead {self.epoch}"
        )
        self.epoch_leader_id = leader_id
        self.leader_endpoints = endpoints or self.leader_endpoints

    def is_log_up_to_date(self, last_epoch: Epoch, end_offset: Offset) -> bool:
        """Return whether a log with this last epoch and end offset is at least as up to date as
        this replica's log (raft paper, 5.4.1)."""
        return (last_epoch, end_offset) >= (self.log.last_epoch, self.log.end_offset)

    def raise_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark to `offset`; it never decreases. Returns True if it changed."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.out.high_watermark = offset
        return True

    def truncate_to(self, offset: Offset) -> None:
        """Truncate the log to `offset`. The removed entries were never committed."""
        assert offset >= self.high_watermark, (
            f"ConsistentCommittedData: cannot cut {offset} below {self.high_watermark}"
        )
        assert offset >= self.log.start_offset
        assert not self.is_log_changing
        self.out.truncate_to = offset

    def random_election_timeout_ms(self) -> int:
        """Return a random election timeout in ms for this replica.

        Its random part prevents candidates from standing for election simultaneously.
        """
        timeout_ms = self.config.election_timeout_ms
        if buggify("raft-early-election"):
            return 1
        return timeout_ms + self.rng.below(timeout_ms)

    def wake_at(self, instant_ms: int) -> None:
        """Request a `Tick` event no later than the monotonic time `instant_ms`."""
        if self.wake_ms is None or instant_ms < self.wake_ms:
            self.wake_ms = instant_ms

    def reject_response(self, outgoing: OutgoingRequest, why: str, now_ms: int) -> None:
        """Reject a voter's impossible response, and retry the request later."""
        self.out.rejected = RejectedResponse(node_id=outgoing.to, why=why)
        self.requests.back_off(outgoing.to, now_ms)

    def reply(self, token: int, response: Response) -> None:
        """Send a response to another node. The driver need not read the log for it."""
        self.out.replies.append(Reply(token=token, response=response))

    def is_free(self, node_id: NodeId, now_ms: int) -> bool:
        """Return whether a request may be sent to a voter now: none is in flight, and no back-off
        is running.

        If not, schedules a wake-up for the time when a request may be sent.
        """
        busy_until_ms = self.requests.busy_until_ms(node_id, now_ms)
        if busy_until_ms is None:
            return True
        self.wake_at(busy_until_ms)
        return False

    def send(self, to: Voter, request: Request, now_ms: int) -> int:
        """Send a request to a voter that has no other request in flight. Returns the request's
        id."""
        outgoing = OutgoingRequest(
            request_id=self.requests.next_request_id(),
            to=to.id,
            endpoints=self.identity.addresses_of(to),
            request=request,
            timeout_ms=self.config.request_timeout_ms,
        )
        self.requests.start(outgoing, now_ms)
        self.out.messages.append(outgoing)
        self.wake_at(now_ms + outgoing.timeout_ms)
        return outgoing.request_id

    def send_fetch(self, to: Voter, now_ms: int, wait_ms_max: int) -> None:
        """Send a fetch request for the entries after the end of this replica's log to a voter. The
        voter may delay its response by `wait_ms_max`."""
        assert self.standing is not Standing.AMNESIAC
        self._send_fetch(to, self.epoch, now_ms, wait_ms_max)

    def _send_fetch(self, to: Voter, epoch: Epoch, now_ms: int, wait_ms_max: int) -> None:
        request = FetchRequest(
            cluster_id=self.identity.cluster_id,
            replica_id=self.identity.node_id,
            replica_directory_id=self.identity.directory_id,
            current_leader_epoch=epoch,
            fetch_offset=self.acknowledged_offset,
            last_fetched_epoch=self.log.last_epoch,
            high_watermark=self.high_watermark,
            wait_ms_max=wait_ms_max,
            bytes_max=1 if buggify("raft-tiny-fetch") else self.config.fetch_bytes_max,
            standing=self.standing,
        )
        self.send(to, request, now_ms)

    def ask_epochs(self, now_ms: int) -> None:
        """Request the current epochs from the voters whose response is missing. Used by a replica
        with standing AMNESIAC."""
        for peer in self.peers:
            if peer.id in self.unheard:
                self.ask_epoch(peer, now_ms)

    def ask_epoch(self, to: Voter, now_ms: int) -> None:
        """Request the current epoch of a voter, unless a request to it is in flight.

        The request is a fetch of epoch 0. Its refusal contains the voter's epoch and leader. A
        fetch of a later epoch would acknowledge entries, perhaps to a leader that was deposed by a
        vote that this replica has lost.
        """
        if self.is_free(to.id, now_ms):
            self._send_fetch(to, NO_ELECTION_YET, now_ms, wait_ms_max=0)

    def seek_leader(self, now_ms: int) -> None:
        """Request the leader's id from a voter. The request is a fetch that does not wait at the
        voter. The voter's refusal names the leader."""
        if self.is_log_changing or self.acknowledged_offset != self.log.end_offset:
            return
        contacts = (*self.peers, *self.identity.bootstrap)
        free = [each for each in contacts if self.is_free(each.id, now_ms)]
        if free and not self.requests.in_flight_count:
            self.send_fetch(free[self.rng.below(len(free))], now_ms, wait_ms_max=0)
