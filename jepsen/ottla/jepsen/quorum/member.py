"""One raft replica in memory: its core, the state that survives crashes, and the ports that perform
its effects. The module does no I/O: messages and the log stay in memory."""

from typing import NoReturn

from ottla.jepsen.quorum.invariants import Invariants
from ottla.jepsen.quorum.memory_log import Entries, MemoryEntry, MemoryLog
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.model.run_now import run_now
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import (
    Append,
    Effects,
    FollowerAppend,
    LeaderAppend,
    OutgoingRequest,
    ReadLog,
    ReadSnapshot,
    RejectedResponse,
    Reply,
    RoleChange,
    SnapshotChunk,
    VotersAppend,
)
from ottla.raft.election_state import ElectionState
from ottla.raft.events import AppendRequested, Event, Tick
from ottla.raft.messages import Records, Response
from ottla.raft.performer import take_step
from ottla.raft.quorum import QuorumCore
from ottla.raft.voters import QuorumIdentity


class PowerCut(BaseException):
    """Raised at a simulated power cut, to end the replica's process. No code of the raft core may
    catch it."""


class MemoryMember:
    """One replica of a simulated quorum, kept in memory. It passes events to its raft core, and
    performs the resulting effects itself."""

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
        """Contents of the member's file `quorum-state`, which survives crashes. None before the
        first write."""
        self.incarnation = 0
        self.core: QuorumCore | None = None
        self.flushes_at_once = True
        self.is_lied_to = False
        """True if other replicas send forged messages to this member. The member may then reject
        responses."""
        self.wants_flush = False
        self.is_cut = False
        """True if the power failed while the member performed effects. The caller must then stop
        this member."""
        self._performed = Effects()
        self._boundary_count = -1
        self._rng = rng
        self._invariants = invariants
        if invariants is not None:
            invariants.watch(identity, self.log)

    @property
    def running(self) -> QuorumCore:
        """Raft core of this member, which must be running."""
        assert self.core is not None
        return self.core

    @property
    def is_leader(self) -> bool:
        """True if this member is running and leads the quorum."""
        return self.core is not None and self.core.is_leader

    def start(self, now_ms: int) -> None:
        """Start the member's raft core. After a crash, it continues from the log and the
        `quorum-state` file that survived."""
        assert self.core is None
        self.incarnation += 1
        self.is_cut = False
        self.core = QuorumCore(
            self.config, self.identity, self.log, self.election, self._rng, now_ms
        )

    def stop(self, survivor_count: int = 0) -> None:
        """Crash this member: its log loses all unflushed entries except the first
        `survivor_count`."""
        self.core = None
        self.wants_flush = False
        self._boundary_count = -1
        self.log.crash(survivor_count)
        if self._invariants is not None:
            self._invariants.forget_volatile(self.identity.node_id)

    def cut_power_after(self, boundary_count: int) -> None:
        """Schedule a power cut of this member after `boundary_count` more boundaries between
        effects. A boundary precedes each truncation, append, snapshot chunk, write of
        `quorum-state`, response and message."""
        self._boundary_count = boundary_count

    def step(self, event: Event, now_ms: int) -> tuple[list[tuple[int, Response]], Effects]:
        """Pass an event to the member's raft core and perform the effects. Returns the finished
        responses by token, and the performed effects.

        The caller delivers the messages. After a power failure (`is_cut`) the result has only the
        effects before it, and the caller must stop the member.
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
        """Append a value to the log if this member is the leader. Returns the finished responses by
        token and the performed effects, or None if this member does not lead."""
        core = self.running
        event = AppendRequested(epoch=core.epoch, records=self._records_of(core.epoch, value))
        try:
            return self.step(event, now_ms)
        except RefusedError:
            return None

    def tick(self, now_ms: int) -> list[OutgoingRequest]:
        """Advance the member's raft core to the time `now_ms`, and return the messages to send."""
        return self.step(Tick(), now_ms)[1].messages

    def flush(self, left: int) -> Offset:
        """Finish an fsync of the log that covers all but the last `left` entries. Returns the end
        offset that is now durable."""
        return self.log.flush(Offset(self.log.end_offset - left))

    def snapshot_at(self, offset: Offset, *, keeps_log: bool) -> None:
        """Write a snapshot of all entries of the log below an offset. Unless `keeps_log`, delete
        these entries from the log."""
        self.log.snapshot_at(offset, keeps_log=keeps_log)

    # --- the ports of its steps ---------------------------------------------------------------

    @property
    def is_out_of_space(self) -> bool:
        """Always False, because the member's log in memory has no size limit."""
        return False

    async def truncate_to(self, offset: Offset, /) -> None:
        """Truncate the member's log to an offset."""
        self._pass_boundary()
        self._truncate(offset)
        self._performed.truncate_to = offset

    def append(self, append: Append, /) -> None:
        """Append entries to the member's log without flushing them."""
        self._pass_boundary()
        self._append(append)
        self._performed.append.append(append)

    async def write_chunk(self, chunk: SnapshotChunk, /) -> None:
        """Write one chunk of the snapshot that the leader sends."""
        self._pass_boundary()
        self._write_chunk(chunk)
        self._performed.snapshot_chunk = chunk

    async def write_election(self, state: ElectionState, /) -> None:
        """Store epoch, vote and leader of the member, as in the file `quorum-state`."""
        self._pass_boundary()
        self._keep_election(state)
        self._performed.persist_election = state

    def flush_soon(self) -> None:
        """Flush the log now. If the member's owner performs the flushes, only record that a flush
        was requested."""
        self._performed.flush = True
        if self.flushes_at_once:
            self.log.flush()
        else:
            self.wants_flush = True

    async def read_log(self, read: ReadLog, /) -> Records:
        """Return entries of the member's log."""
        return self.log.read(read.offset, read.bytes_max)

    def answer(self, reply: Reply, /) -> None:
        """Add the response to a request to the result of the current step. The caller delivers
        it."""
        self._pass_boundary()
        read = reply.read
        if isinstance(read, ReadSnapshot):
            data = self.log.read_snapshot(read.snapshot_id, read.position, read.bytes_max)
            reply = reply.filled(data)
        self._performed.replies.append(reply)

    def send(self, outgoing: OutgoingRequest, /) -> None:
        """Do nothing: the effects contain the message, and the caller's network delivers it."""
        self._pass_boundary()
        self._performed.messages.append(outgoing)

    def commit(self, high_watermark: Offset, /) -> None:
        """Record the member's high watermark. There is no state machine; the invariant checker
        checks the committed entries."""
        self._performed.high_watermark = high_watermark

    def reject_response(self, rejection: RejectedResponse, /) -> None:
        """Raise AssertionError, because raft has rejected a response. Do nothing if forged messages
        are sent to this member."""
        assert self._invariants is None or self.is_lied_to, rejection.why
        self._performed.rejected = rejection

    def change_role(self, change: RoleChange, /) -> None:
        """Record the member's new role. There is no application to notify."""
        self._performed.role_change = change

    def wake_at(self, wake_ms: int | None, /) -> None:
        """Record the time at which the next tick is due. The member's owner decides when to send
        the tick."""
        self._performed.next_wake_ms = wake_ms

    def fail(self, error: Exception, /) -> NoReturn:
        """Raise the error of a failed raft step, because every failed step is a bug."""
        raise error

    # --- overridden by members with another kind of log ---------------------------------------

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
        """Cut the power if it was scheduled for this boundary between effects."""
        if self._boundary_count == 0:
            raise PowerCut
        if self._boundary_count > 0:
            self._boundary_count -= 1


def entries_of(append: Append) -> tuple[MemoryEntry, ...]:
    """Return the entries that an append effect adds to the log."""
    if isinstance(append, FollowerAppend | LeaderAppend):
        assert isinstance(append.records, Entries)
        return append.records
    if isinstance(append, VotersAppend):
        ids = ",".join(map(str, append.voters.ids))
        return (MemoryEntry(append.leader_epoch, f"voters {ids}", voters=append.voters),)
    return (MemoryEntry(append.leader_epoch, f"leader {append.leader_id}", True),)
