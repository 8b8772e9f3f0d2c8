"""One raft replica under test. The test sends the messages of all other replicas. Everything is in
memory, and virtual time advances only by calls of the test."""

from ottla.jepsen.quorum.invariants import Invariants
from ottla.jepsen.quorum.member import MemoryMember
from ottla.jepsen.quorum.memory_log import MemoryEntry, MemoryLog
from ottla.jepsen.quorum.world import CLUSTER_ID, identity, voter
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Effects, OutgoingRequest
from ottla.raft.election_state import ElectionState
from ottla.raft.events import (
    Event,
    LogFlushed,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Tick,
)
from ottla.raft.messages import FetchRequest, Request, Response, VoteRequest, VoteResponse
from ottla.raft.quorum import QuorumCore
from ottla.raft.transitions import Role, Standing


class Solo:
    """One started raft replica, driven by a test. It keeps the effects of its last step. A flush
    ends when the test calls `flushed()`."""

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
        """Start the raft replica under test. `is_watched` enables the invariant checker, which
        assumes that no messages are forged."""
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
        """Raft core of the replica under test."""
        return self.member.running

    def role(self) -> Role:
        """Role of the replica under test. It is a method because type checkers assume that a
        property stays the same between two reads."""
        return self.core.role

    @property
    def log(self) -> MemoryLog:
        """Log of the replica under test."""
        return self.member.log

    @property
    def persisted(self) -> ElectionState:
        """Contents of the replica's `quorum-state` file."""
        assert self.member.election is not None
        return self.member.election

    @property
    def sent(self) -> list[OutgoingRequest]:
        """Messages that the replica sent in its last step."""
        return self.effects.messages

    def step(self, event: Event) -> Effects:
        """Pass an event to the replica at the current virtual time. Returns the effects."""
        answers, self.effects = self.member.step(event, self.now_ms)
        self.answers.update(answers)
        return self.effects

    def tick(self, after_ms: int = 0) -> Effects:
        """Advance the virtual time by `after_ms`, then pass the new time to the replica. Returns
        the effects."""
        self.now_ms += after_ms
        return self.step(Tick())

    def tick_when_due(self) -> Effects:
        """Advance the virtual time to the moment at which the replica needs its next tick, and tick
        the replica. Returns the effects."""
        assert self.effects.next_wake_ms is not None
        return self.tick(max(0, self.effects.next_wake_ms - self.now_ms))

    def flushed(self) -> Effects:
        """Report to the replica that the flush of its log has ended. Returns the effects."""
        return self.step(LogFlushed(end_offset=self.log.flush()))

    def ask(self, request: Request) -> Response | None:
        """Send the replica a request, and return its response. Returns None while the response is
        pending (see `answers[token]`)."""
        self._token += 1
        self.step(RequestReceived(token=self._token, request=request))
        return self.answers.get(self._token)

    @property
    def last_token(self) -> int:
        """Token of the last request that the test sent to the replica."""
        return self._token

    def respond(self, outgoing: OutgoingRequest, response: Response) -> Effects:
        """Send the replica a response to one of its requests. Returns the effects."""
        return self.step(ResponseReceived(request_id=outgoing.request_id, response=response))

    def fail(self, outgoing: OutgoingRequest) -> Effects:
        """Report to the replica that one of its requests was lost. Returns the effects of this
        event."""
        return self.step(RequestFailed(request_id=outgoing.request_id))

    # --- scenarios ----------------------------------------------------------------------------

    def become_candidate(self) -> None:
        """Grant the replica its pre-vote, so that it stands for election."""
        self.tick(2 * self.config.election_timeout_ms)
        self.respond(self.sent[0], VoteResponse(leader_epoch=self.core.epoch, vote_granted=True))

    def become_leader(self) -> None:
        """Grant the replica the votes of an election, and flush its LeaderChange record."""
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
        """Return a Vote request from another voter to this replica."""
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
        """Return a Fetch request from another replica to this one."""
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
