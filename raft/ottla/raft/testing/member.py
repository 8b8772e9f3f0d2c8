"""One replica in memory: a core, what survives its crashes, and the driver's duties in order."""

from collections.abc import Callable
from dataclasses import replace

from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import (
    Append,
    Effects,
    FollowerAppend,
    LeaderAppend,
    Outgoing,
    ReadLog,
    Reply,
)
from ottla.raft.election_state import ElectionState, decode, encode
from ottla.raft.events import AppendRequested, Event, Tick
from ottla.raft.messages import FetchResponse, FetchSnapshotResponse, Response, VoteResponse
from ottla.raft.quorum import QuorumCore
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.memory_log import Entries, Entry, MemoryLog
from ottla.raft.voters import QuorumIdentity


class PowerCut(Exception):  # noqa: N818 - an event, not a fault
    """The member's power went, in the middle of performing effects."""


class Member:
    """One replica of a quorum in memory."""

    def __init__(
        self,
        config: QuorumConfig,
        identity: QuorumIdentity,
        rng: Rng,
        invariants: Invariants | None = None,
    ) -> None:
        self.config = config
        self.identity = identity
        self.log = MemoryLog()
        self.quorum_state: bytes | None = None
        """The file that survives."""
        self.incarnation = 0
        self.core: QuorumCore | None = None
        self.flushes_at_once = True
        self.wants_flush = False
        self._rng = rng
        self._invariants = invariants

    @property
    def running(self) -> QuorumCore:
        """Return the core of a member that runs."""
        assert self.core is not None
        return self.core

    @property
    def is_leader(self) -> bool:
        """Say whether this member runs and leads."""
        return self.core is not None and self.core.is_leader

    def start(self, now_ms: int) -> None:
        """Start, or start again from what survived."""
        assert self.core is None
        self.incarnation += 1
        election: ElectionState | None = None
        if self.quorum_state is not None:
            election = decode(self.quorum_state)
        self.core = QuorumCore(self.config, self.identity, self.log, election, self._rng, now_ms)

    def stop(self, survivor_count: int = 0) -> None:
        """Crash: what was neither flushed nor among the survivors is gone."""
        self.core = None
        self.wants_flush = False
        self.log.crash(survivor_count)
        if self._invariants is not None:
            self._invariants.forget_volatile(self.identity.node_id)

    def step(
        self, event: Event, now_ms: int, pause: Callable[[str], None] = lambda duty: None
    ) -> tuple[list[tuple[int, Response]], Effects]:
        """Step and perform; `pause` is called between duties and may raise PowerCut.

        Returns the finished answers by token; messages are left to the caller's network.
        """
        effects = self.running.step(event, now_ms)
        pause("append")
        self._change_log(effects)
        pause("fsync")
        if effects.persist_election is not None:
            self.quorum_state = encode(effects.persist_election)
        if effects.flush:
            if self.flushes_at_once:
                self.log.flush()
            else:
                self.wants_flush = True
        pause("send")
        answers = [(reply.token, self._answer(reply)) for reply in effects.replies]
        if self._invariants is not None:
            self._invariants.check(self.identity.node_id, self.running, self.log)
        return answers, effects

    def propose(self, value: str, now_ms: int) -> tuple[list[tuple[int, Response]], Effects] | None:
        """Append a value as the leader; None when this member does not lead."""
        core = self.running
        event = AppendRequested(epoch=core.epoch, records=Entries([Entry(core.epoch, value)]))
        try:
            return self.step(event, now_ms)
        except RefusedError:
            return None

    def tick(self, now_ms: int) -> list[Outgoing]:
        """Tick and return the messages."""
        return self.step(Tick(), now_ms)[1].messages

    def _change_log(self, effects: Effects) -> None:
        if effects.truncate_to is not None:
            self.log.truncate_to(effects.truncate_to)
        for append in effects.append:
            self.log.append(entries_of(append))
        chunk = effects.snapshot_chunk
        if chunk is not None:
            assert isinstance(chunk.data, Entries)
            self.log.write_snapshot(
                chunk.snapshot_id, chunk.position, chunk.data, is_last=chunk.is_last
            )

    def _answer(self, reply: Reply) -> Response:
        response = reply.response
        if isinstance(response, VoteResponse) and response.vote_granted:
            self._check_persisted(response.leader_epoch)
        if reply.read is None:
            return response
        if isinstance(reply.read, ReadLog):
            assert isinstance(response, FetchResponse)
            records = self.log.read(reply.read.offset, reply.read.bytes_max)
            return replace(response, records=records)
        assert isinstance(response, FetchSnapshotResponse)
        read = reply.read
        return replace(
            response,
            data=self.log.read_snapshot(read.snapshot_id, read.position, read.bytes_max),
        )

    def _check_persisted(self, epoch: Epoch) -> None:
        """PersistedBeforeAnswered: a vote of an epoch rests on a file that knows the epoch."""
        assert epoch == 0 or self.quorum_state is not None
        if self.quorum_state is not None:
            assert decode(self.quorum_state).epoch >= epoch


def entries_of(append: Append) -> tuple[Entry, ...]:
    """Return the entries that an append asks for."""
    if isinstance(append, FollowerAppend | LeaderAppend):
        assert isinstance(append.records, Entries)
        return tuple(append.records)
    return (Entry(append.leader_epoch, f"leader {append.leader_id}"),)
