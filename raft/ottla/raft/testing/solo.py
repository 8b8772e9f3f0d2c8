"""One replica alone with its test, which plays all the others by hand."""

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Effects, Outgoing
from ottla.raft.election_state import ElectionState
from ottla.raft.events import (
    Event,
    Flushed,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Tick,
)
from ottla.raft.messages import FetchRequest, Request, Response, VoteRequest, VoteResponse
from ottla.raft.quorum import QuorumCore
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.member import MemoryMember
from ottla.raft.testing.memory_log import MemoryEntry, MemoryLog
from ottla.raft.testing.seeded_rng import SeededRng
from ottla.raft.testing.world import CLUSTER_ID, identity, voter
from ottla.raft.transitions import Role, Standing


class Solo:
    """A started replica; its last effects are at hand, its flushes wait to be told."""

    def __init__(
        self,
        node_id: int = 1,
        voter_ids: tuple[int, ...] = (1, 2, 3),
        *,
        election: ElectionState | None = None,
        entry_epochs: tuple[int, ...] = (),
        is_wiped: bool = False,
        is_watched: bool = True,
    ) -> None:
        """Start it; `is_watched` holds it to the invariants of a quorum whose members are true."""
        config = QuorumConfig()
        whoami = identity(node_id, voter_ids, is_wiped=is_wiped)
        self.member = MemoryMember(
            config, whoami, SeededRng(node_id), Invariants() if is_watched else None
        )
        self.member.log.append(
            tuple(MemoryEntry(Epoch(epoch), f"old {at}") for at, epoch in enumerate(entry_epochs))
        )
        self.member.log.flush()
        if election is not None:
            self.member.election = election
        self.config = config
        self.now_ms = 0
        self.effects = Effects()
        self.answers: dict[int, Response] = {}
        self._token = 0
        self.member.flushes_at_once = False
        self.member.start(self.now_ms)

    @property
    def core(self) -> QuorumCore:
        """The replica under test."""
        return self.member.running

    def role(self) -> Role:
        """Its role; a method, as type checkers take a property for constant."""
        return self.core.role

    @property
    def log(self) -> MemoryLog:
        """Its log."""
        return self.member.log

    @property
    def persisted(self) -> ElectionState:
        """What its `quorum-state` file says."""
        assert self.member.election is not None
        return self.member.election

    @property
    def sent(self) -> list[Outgoing]:
        """What the last step sends."""
        return self.effects.messages

    def step(self, event: Event) -> Effects:
        """Step now."""
        answers, self.effects = self.member.step(event, self.now_ms)
        self.answers.update(answers)
        return self.effects

    def tick(self, after_ms: int = 0) -> Effects:
        """Let time pass, then tick."""
        self.now_ms += after_ms
        return self.step(Tick())

    def tick_when_due(self) -> Effects:
        """Let time pass until the core wants its tick."""
        assert self.effects.next_wake_ms is not None
        return self.tick(max(0, self.effects.next_wake_ms - self.now_ms))

    def flushed(self) -> Effects:
        """Tell that the flush is done."""
        return self.step(Flushed(end_offset=self.log.flush()))

    def ask(self, request: Request) -> Response | None:
        """Ask it something; None while the answer waits (see `answers[token]`)."""
        self._token += 1
        self.step(RequestReceived(token=self._token, request=request))
        return self.answers.get(self._token)

    @property
    def last_token(self) -> int:
        """The token of the last request."""
        return self._token

    def respond(self, outgoing: Outgoing, response: Response) -> Effects:
        """Answer one of its requests."""
        return self.step(ResponseReceived(request_id=outgoing.request_id, response=response))

    def fail(self, outgoing: Outgoing) -> Effects:
        """Lose one of its requests."""
        return self.step(RequestFailed(request_id=outgoing.request_id))

    # --- whole chapters -------------------------------------------------------------------

    def become_candidate(self) -> None:
        """Win the pre-vote."""
        self.tick(2 * self.config.election_timeout_ms)
        self.respond(self.sent[0], VoteResponse(leader_epoch=self.core.epoch, vote_granted=True))

    def become_leader(self) -> None:
        """Win an election, and flush its LeaderChange."""
        self.become_candidate()
        self.respond(self.sent[0], VoteResponse(leader_epoch=self.core.epoch, vote_granted=True))
        assert self.core.is_leader
        self.flushed()

    def vote_request(
        self,
        sender: int,
        *,
        epoch: int,
        end_offset: int = 0,
        last_epoch: int = 0,
        pre_vote: bool = False,
    ) -> VoteRequest:
        """Return a vote request of another voter to this one."""
        return VoteRequest(
            cluster_id=CLUSTER_ID,
            voter_id=self.member.identity.node_id,
            voter_directory_id=voter(self.member.identity.node_id).directory_id,
            replica_epoch=Epoch(epoch),
            replica_id=NodeId(sender),
            replica_directory_id=voter(sender).directory_id,
            last_epoch=Epoch(last_epoch),
            end_offset=Offset(end_offset),
            pre_vote=pre_vote,
        )

    def fetch_request(
        self,
        sender: int,
        *,
        offset: int,
        last_epoch: int,
        high_watermark: int = 0,
        wait_ms: int = 500,
        epoch: int | None = None,
        standing: Standing = Standing.FULL,
    ) -> FetchRequest:
        """Return a fetch of another replica from this one."""
        return FetchRequest(
            cluster_id=CLUSTER_ID,
            replica_id=NodeId(sender),
            replica_directory_id=voter(sender).directory_id,
            current_leader_epoch=self.core.epoch if epoch is None else Epoch(epoch),
            fetch_offset=Offset(offset),
            last_fetched_epoch=Epoch(last_epoch),
            high_watermark=Offset(high_watermark),
            wait_ms_max=wait_ms,
            bytes_max=1000,
            standing=standing,
        )
