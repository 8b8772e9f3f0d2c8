"""What every role shares: who we are, the log, the present epoch's facts, the step's effects.

A mutable class owned by one `QuorumCore`.  Invariants: MonotonicEpoch, MonotonicHighWatermark, and
this replica's part of OneLeaderPerEpoch: in one epoch it votes once and knows one leader.
"""

from ottla.model.buggify import buggify
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Disbelief, Effects, Outgoing, Reply
from ottla.raft.election_state import NO_ELECTION_YET, ElectionState
from ottla.raft.log_view import LogView
from ottla.raft.messages import FetchRequest, Request, Response
from ottla.raft.requests import Requests
from ottla.raft.transitions import STANDING_LEGAL, Standing
from ottla.raft.trust import EPOCH_JUMP_MAX, EPOCH_MAX, EpochCredit
from ottla.raft.voters import QuorumIdentity, ReplicaKey, Voter


class Replica:
    """The state beneath the roles; roles are handed it with every call."""

    __slots__ = (
        "_credit",
        "config",
        "damage_epoch",
        "epoch",
        "epoch_leader_id",
        "high_watermark",
        "identity",
        "is_shutting_down",
        "is_voter",
        "key",
        "log",
        "out",
        "peers",
        "requests",
        "rng",
        "standing",
        "unheard",
        "voted",
        "wake_ms",
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
        self.identity = identity
        self.key = identity.key
        self.peers = identity.peers
        """The voters that are other nodes."""
        self.is_voter = identity.is_voter
        """Whether this replica may vote; who we are does not change in the life of a core."""
        self.log = log
        self.rng = rng
        self.requests = Requests(config.retry_backoff_ms)
        self.out = Effects()
        self.wake_ms: int | None = None
        self.is_shutting_down = False
        self.epoch = election.epoch
        self.epoch_leader_id = election.leader_id
        """Who leads or led `epoch`; once known it stays, even after that leader resigned."""
        self.voted = election.voted
        """Whom this replica voted for in `epoch`."""
        self.standing = election.standing
        """Promises that this voter can keep; FULL for an observer, which makes none."""
        self.damage_epoch = election.epoch
        """Leaders of epochs up to this one may count what this replica acknowledged and lost."""
        self.unheard: set[NodeId] = set()
        """Voters that an amnesiac must still hear from; empty for every other replica."""
        if self.standing is Standing.AMNESIAC:
            self.unheard = {peer.id for peer in self.peers}
        snapshot_id = log.latest_snapshot_id
        self.high_watermark = Offset(0) if snapshot_id is None else snapshot_id.offset

    @property
    def may_campaign(self) -> bool:
        """Whether this replica may stand for election; in the last epoch nobody may."""
        return self.votes and not self.is_shutting_down and self.epoch < EPOCH_MAX

    @property
    def votes(self) -> bool:
        """True if this replica votes: a voter that can keep all its promises."""
        return self.is_voter and self.standing is Standing.FULL

    def rise_to(self, standing: Standing) -> None:
        """Take a higher standing."""
        assert standing in STANDING_LEGAL[self.standing], f"{self.standing} cannot be {standing}"
        self.standing = standing

    def hear_from(self, voter_id: NodeId) -> None:
        """Note that a voter has named its epoch, which is not above ours any more.

        A vote that this replica has forgotten was asked for in an epoch that its candidate had
        reached.  Once every voter has named an epoch after the loss, none of these is above ours.
        """
        if self.standing is Standing.AMNESIAC:
            self.unheard.discard(voter_id)
            if not self.unheard:
                self.damage_epoch = self.epoch
                self.rise_to(Standing.CATCHING_UP)

    @property
    def election_state(self) -> ElectionState:
        """Return what must never be forgotten of this epoch."""
        return ElectionState(
            epoch=self.epoch,
            leader_id=self.epoch_leader_id,
            voted=self.voted,
            standing=self.standing,
        )

    def has_changed_since(self, known: ElectionState) -> bool:
        """Return whether what must never be forgotten is not what is known any more."""
        return (
            self.epoch != known.epoch
            or self.epoch_leader_id != known.leader_id
            or self.voted != known.voted
            or self.standing is not known.standing
        )

    @property
    def acknowledged_offset(self) -> Offset:
        """Return how far this replica vouches for its log; only a voter must have flushed it."""
        return self.log.flushed_offset if self.is_voter else self.log.end_offset

    @property
    def is_log_in_motion(self) -> bool:
        """Whether this step changes the log, so that LogView is not true before the next."""
        out = self.out
        return bool(out.append) or out.truncate_to is not None or out.snapshot_chunk is not None

    def enter_epoch(self, epoch: Epoch) -> None:
        """Move to a higher epoch, of which nothing is known yet."""
        assert epoch > self.epoch, f"MonotonicEpoch: {self.epoch} cannot be followed by {epoch}"
        self.epoch = epoch
        self.epoch_leader_id = None
        self.voted = None

    def may_be_raised_to(self, epoch: int, now_ms: int) -> bool:
        """Return whether a request, which anybody may have sent, may name this epoch."""
        rise = max(0, epoch - self.epoch)
        return epoch <= EPOCH_MAX and self._credit.is_enough(rise, now_ms)

    def charge_request(self, epoch: int) -> None:
        """Count what a request raises the epoch by, before it does."""
        self._credit.spend(max(0, epoch - self.epoch))

    def contradicts(self, leader_id: NodeId | None, epoch: int) -> bool:
        """Return whether a leader is named for our epoch that is not the one we know."""
        return (
            leader_id is not None
            and epoch == self.epoch
            and self.epoch_leader_id not in (None, leader_id)
        )

    def fault_of_answer(self, response: Response) -> str | None:
        """Return why what an answer says of the epoch cannot be true; None where it may be."""
        epoch, leader_id = response.leader_epoch, response.leader_id
        if epoch > min(EPOCH_MAX, self.epoch + EPOCH_JUMP_MAX):
            return f"it names epoch {epoch}, and this node's is {self.epoch}"
        if leader_id is None or leader_id not in self.identity.voters:
            return None
        is_candidate = self.voted == self.identity.key and self.epoch_leader_id is None
        if leader_id == self.identity.node_id and epoch == self.epoch and is_candidate:
            return f"it names this node as leader of epoch {epoch}, for which it only stands"
        if epoch == 0 or self.contradicts(leader_id, epoch):
            return (
                f"OneLeaderPerEpoch: it names {leader_id} as leader of epoch {epoch}, and this"
                f" node knows {self.epoch_leader_id}"
            )
        return None

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Give this epoch's one vote."""
        assert self.voted is None or self.voted == candidate
        assert self.epoch_leader_id is None
        self.voted = candidate

    def set_epoch_leader(self, leader_id: NodeId) -> None:
        """Note who leads this epoch."""
        assert self.epoch_leader_id in (None, leader_id), (
            f"OneLeaderPerEpoch: {self.epoch_leader_id} and {leader_id} lead {self.epoch}"
        )
        self.epoch_leader_id = leader_id

    def is_log_up_to_date(self, last_epoch: Epoch, end_offset: Offset) -> bool:
        """Return whether a log that ends so is at least as new as ours (raft paper, 5.4.1)."""
        return (last_epoch, end_offset) >= (self.log.last_epoch, self.log.end_offset)

    def raise_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark; return whether it moved.  It never recedes."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.out.high_watermark = offset
        return True

    def truncate_to(self, offset: Offset) -> None:
        """Cut off what was never committed."""
        assert offset >= self.high_watermark, (
            f"ConsistentCommittedData: cannot cut {offset} below {self.high_watermark}"
        )
        assert offset >= self.log.start_offset
        assert not self.is_log_in_motion
        self.out.truncate_to = offset

    def random_election_timeout_ms(self) -> int:
        """Return an election timeout; chance keeps candidates from standing in step."""
        timeout_ms = self.config.election_timeout_ms
        if buggify("raft-early-election"):
            return 1
        return timeout_ms + self.rng.below(timeout_ms)

    def wake_at(self, instant_ms: int) -> None:
        """Be ticked at `instant_ms` at the latest."""
        if self.wake_ms is None or instant_ms < self.wake_ms:
            self.wake_ms = instant_ms

    def disbelieve(self, outgoing: Outgoing, why: str, now_ms: int) -> None:
        """Refuse an answer, and ask again later."""
        self.out.disbelieved = Disbelief(node_id=outgoing.to, why=why)
        self.requests.back_off(outgoing.to, now_ms)

    def reply(self, token: int, response: Response) -> None:
        """Answer a request with nothing to be read."""
        self.out.replies.append(Reply(token=token, response=response))

    def is_free(self, node_id: NodeId, now_ms: int) -> bool:
        """Return whether a voter may be asked something now; if not, wake when it may."""
        busy_until_ms = self.requests.busy_until_ms(node_id, now_ms)
        if busy_until_ms is None:
            return True
        self.wake_at(busy_until_ms)
        return False

    def send(self, to: Voter, request: Request, now_ms: int) -> None:
        """Ask a free voter something."""
        outgoing = Outgoing(
            request_id=self.requests.next_request_id(),
            to=to.id,
            endpoints=to.endpoints,
            request=request,
            timeout_ms=self.config.request_timeout_ms,
        )
        self.requests.start(outgoing, now_ms)
        self.out.messages.append(outgoing)
        self.wake_at(now_ms + outgoing.timeout_ms)

    def send_fetch(self, to: Voter, now_ms: int, wait_ms_max: int) -> None:
        """Ask a voter for what comes after our log."""
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
        """Ask the voters that an amnesiac has not heard from for their epochs.

        A fetch of epoch 0 is refused with epoch and leader.  One of a later epoch would acknowledge
        entries, perhaps to a leader that a forgotten vote has deposed.
        """
        for peer in self.peers:
            if peer.id in self.unheard and self.is_free(peer.id, now_ms):
                self._send_fetch(peer, NO_ELECTION_YET, now_ms, wait_ms_max=0)

    def seek_leader(self, now_ms: int) -> None:
        """Ask some voter, by a fetch that does not wait, who leads; its refusal tells."""
        if self.is_log_in_motion or self.acknowledged_offset != self.log.end_offset:
            return
        free = [peer for peer in self.peers if self.is_free(peer.id, now_ms)]
        if free and not self.requests.in_flight_count:
            self.send_fetch(free[self.rng.below(len(free))], now_ms, wait_ms_max=0)
