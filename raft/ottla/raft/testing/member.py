"""One replica in memory: a core, what survives its crashes, and the ports of its steps."""

from typing import NoReturn

from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.model.run_now import run_now
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import (
    Append,
    Disbelief,
    Effects,
    FollowerAppend,
    LeaderAppend,
    Outgoing,
    ReadLog,
    ReadSnapshot,
    Reply,
    RoleChange,
    SnapshotChunk,
)
from ottla.raft.election_state import ElectionState
from ottla.raft.events import AppendRequested, Event, Tick
from ottla.raft.messages import Records, Response
from ottla.raft.performer import take_step
from ottla.raft.quorum import QuorumCore
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.memory_log import Entries, MemoryEntry, MemoryLog
from ottla.raft.voters import QuorumIdentity


class PowerCut(BaseException):
    """A replica's process ends here; no core may catch it."""


class MemoryMember:
    """One replica of a quorum in memory, which is the ports of its steps."""

    __slots__ = (
        "_boundary_count",
        "_invariants",
        "_performed",
        "_rng",
        "config",
        "core",
        "election",
        "flushes_at_once",
        "identity",
        "incarnation",
        "is_cut",
        "is_lied_to",
        "log",
        "wants_flush",
    )

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
        self.election: ElectionState | None = None
        """What the file `quorum-state` says; it survives."""
        self.incarnation = 0
        self.core: QuorumCore | None = None
        self.flushes_at_once = True
        self.is_lied_to = False
        """Whether somebody sends what nobody honest would."""
        self.wants_flush = False
        self.is_cut = False
        """The power went while the last step's effects were performed; stop it now."""
        self._performed = Effects()
        self._boundary_count = -1
        self._rng = rng
        self._invariants = invariants
        if invariants is not None:
            invariants.watch(identity, self.log)

    @property
    def running(self) -> QuorumCore:
        """Return the core of a member that runs."""
        assert self.core is not None
        return self.core

    @property
    def is_leader(self) -> bool:
        """Whether this member runs and leads."""
        return self.core is not None and self.core.is_leader

    def start(self, now_ms: int) -> None:
        """Start, or start again from what survived."""
        assert self.core is None
        self.incarnation += 1
        self.is_cut = False
        self.core = QuorumCore(
            self.config, self.identity, self.log, self.election, self._rng, now_ms
        )

    def stop(self, survivor_count: int = 0) -> None:
        """Crash: what was neither flushed nor among the survivors is gone."""
        self.core = None
        self.wants_flush = False
        self._boundary_count = -1
        self.log.crash(survivor_count)
        if self._invariants is not None:
            self._invariants.forget_volatile(self.identity.node_id)

    def cut_power_after(self, boundary_count: int) -> None:
        """Have the power go after so many boundaries between the effects of coming steps.

        A boundary lies before each truncation, append, snapshot chunk, write of `quorum-state`,
        answer and message.
        """
        self._boundary_count = boundary_count

    def step(self, event: Event, now_ms: int) -> tuple[list[tuple[int, Response]], Effects]:
        """Step and perform; return the finished answers by token and what was performed.

        Messages are left to the caller's network.  Where the power went (`is_cut`), only what was
        done by then is there, and the caller stops the member.
        """
        core = self.running
        performed = self._performed = Effects()
        try:
            run_now(take_step(core, event, now_ms, self))
        except PowerCut:
            self.is_cut = True
        else:
            if self._invariants is not None:
                self._invariants.check(
                    self.identity.node_id, core, self.log, self.election, event, performed
                )
        return [(reply.token, reply.response) for reply in performed.replies], performed

    def propose(self, value: str, now_ms: int) -> tuple[list[tuple[int, Response]], Effects] | None:
        """Append a value as the leader; None when this member does not lead."""
        core = self.running
        event = AppendRequested(epoch=core.epoch, records=self._records_of(core.epoch, value))
        try:
            return self.step(event, now_ms)
        except RefusedError:
            return None

    def tick(self, now_ms: int) -> list[Outgoing]:
        """Tick and return the messages."""
        return self.step(Tick(), now_ms)[1].messages

    def flush(self, left: int) -> Offset:
        """End an fsync that began before the last `left` entries were written; return its end."""
        return self.log.flush(Offset(self.log.end_offset - left))

    def snapshot_at(self, offset: Offset, *, keeps_log: bool) -> None:
        """Write a snapshot of all below an offset."""
        self.log.snapshot_at(offset, keeps_log=keeps_log)

    # --- the ports of its steps ---------------------------------------------------------------

    @property
    def lacks_room(self) -> bool:
        """Return False: memory has room."""
        return False

    async def truncate_to(self, offset: Offset, /) -> None:
        """Cut off the log from an offset on."""
        self._pass_boundary()
        self._truncate(offset)
        self._performed.truncate_to = offset

    def append(self, append: Append, /) -> None:
        """Append without flushing."""
        self._pass_boundary()
        self._append(append)
        self._performed.append.append(append)

    async def write_chunk(self, chunk: SnapshotChunk, /) -> None:
        """Write a part of the leader's snapshot."""
        self._pass_boundary()
        self._write_chunk(chunk)
        self._performed.snapshot_chunk = chunk

    async def write_election(self, state: ElectionState, /) -> None:
        """Remember epoch, vote and leader."""
        self._pass_boundary()
        self._keep_election(state)
        self._performed.persist_election = state

    def flush_soon(self) -> None:
        """Flush now, or leave it to the member's owner."""
        self._performed.flush = True
        if self.flushes_at_once:
            self.log.flush()
        else:
            self.wants_flush = True

    async def read_log(self, read: ReadLog, /) -> Records:
        """Return entries of the log."""
        return self.log.read(read.offset, read.bytes_max)

    def answer(self, reply: Reply, /) -> None:
        """Leave the answer to the caller's network."""
        self._pass_boundary()
        read = reply.read
        if isinstance(read, ReadSnapshot):
            data = self.log.read_snapshot(read.snapshot_id, read.position, read.bytes_max)
            reply = reply.filled(data)
        self._performed.replies.append(reply)

    def send(self, outgoing: Outgoing, /) -> None:
        """Leave the message to the caller's network."""
        self._pass_boundary()
        self._performed.messages.append(outgoing)

    def commit(self, high_watermark: Offset, /) -> None:
        """Note it: the state machine is the judge's."""
        self._performed.high_watermark = high_watermark

    def disbelieve(self, disbelief: Disbelief, /) -> None:
        """Take it for a bug where every member speaks the truth."""
        assert self._invariants is None or self.is_lied_to, disbelief.why
        self._performed.disbelieved = disbelief

    def change_role(self, change: RoleChange, /) -> None:
        """Note it: there is no application."""
        self._performed.role_change = change

    def wake_at(self, wake_ms: int | None, /) -> None:
        """Leave the next tick to the member's owner."""
        self._performed.next_wake_ms = wake_ms

    def fail(self, error: Exception, /) -> NoReturn:
        """Take every failed step for a bug."""
        raise error

    # --- what another kind of log does otherwise ----------------------------------------------

    def _truncate(self, offset: Offset) -> None:
        self.log.truncate_to(offset)

    def _append(self, append: Append) -> None:
        self.log.append(entries_of(append))

    def _write_chunk(self, chunk: SnapshotChunk) -> None:
        assert isinstance(chunk.data, Entries)
        self.log.write_snapshot(
            chunk.snapshot_id, chunk.position, chunk.data, is_last=chunk.is_last
        )

    def _keep_election(self, state: ElectionState) -> None:
        self.election = state

    def _records_of(self, epoch: Epoch, value: str) -> Records:
        return Entries([MemoryEntry(epoch, value)])

    def _pass_boundary(self) -> None:
        """Lose power here, if this is the boundary chosen for that."""
        if self._boundary_count == 0:
            raise PowerCut
        if self._boundary_count > 0:
            self._boundary_count -= 1


def entries_of(append: Append) -> tuple[MemoryEntry, ...]:
    """Return the entries that an append asks for."""
    if isinstance(append, FollowerAppend | LeaderAppend):
        assert isinstance(append.records, Entries)
        return append.records
    return (MemoryEntry(append.leader_epoch, f"leader {append.leader_id}", True),)
