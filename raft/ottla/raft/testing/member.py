"""One replica in memory: a core, what survives its crashes, and the driver's duties in order."""

from dataclasses import replace

from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, Offset
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
from ottla.raft.election_state import ElectionState
from ottla.raft.events import AppendRequested, Event, Tick
from ottla.raft.messages import FetchResponse, FetchSnapshotResponse, Records, Response
from ottla.raft.quorum import QuorumCore
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.memory_log import Entries, Entry, MemoryLog
from ottla.raft.voters import QuorumIdentity


class Member:
    """One replica of a quorum in memory."""

    __slots__ = (
        "_boundary_count",
        "_invariants",
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
        """Step and perform; return the finished answers by token and the effects.

        Messages are left to the caller's network.  Where the power went (`is_cut`), only those
        answers and messages are there which had left by then, and the caller stops the member.
        """
        core = self.core
        assert core is not None
        effects = core.step(event, now_ms)
        if self._invariants is not None and not self.is_lied_to:
            # Among members that speak the truth nothing is ever disbelieved.
            assert effects.disbelieved is None, effects.disbelieved.why
        if self._boundary_count >= 0:
            return self._perform_in_part(event, effects)
        self._change_log(effects)
        self._persist(effects)
        answers = [(reply.token, self._answer(reply)) for reply in effects.replies]
        if self._invariants is not None:
            self._invariants.check(
                self.identity.node_id, core, self.log, self.election, event, effects
            )
        return answers, effects

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

    # --- what another kind of log does otherwise ----------------------------------------------

    def _change_log(self, effects: Effects) -> None:
        if effects.truncate_to is not None:
            self._truncate(effects.truncate_to)
        for append in effects.append:
            self._append(append)
        if effects.snapshot_chunk is not None:
            self._write_chunk(effects)

    def _truncate(self, offset: Offset) -> None:
        self.log.truncate_to(offset)

    def _append(self, append: Append) -> None:
        self.log.append(entries_of(append))

    def _keep_election(self, state: ElectionState) -> None:
        self.election = state

    def _records_of(self, epoch: Epoch, value: str) -> Records:
        return Entries([Entry(epoch, value)])

    def _write_chunk(self, effects: Effects) -> None:
        chunk = effects.snapshot_chunk
        assert chunk is not None
        assert isinstance(chunk.data, Entries)
        self.log.write_snapshot(
            chunk.snapshot_id, chunk.position, chunk.data, is_last=chunk.is_last
        )

    def _persist(self, effects: Effects) -> None:
        if effects.persist_election is not None:
            self._keep_election(effects.persist_election)
        if effects.flush:
            if self.flushes_at_once:
                self.log.flush()
            else:
                self.wants_flush = True

    def _answer(self, reply: Reply) -> Response:
        response = reply.response
        if reply.read is None:
            return response
        if isinstance(reply.read, ReadLog):
            assert isinstance(response, FetchResponse)
            records = self.log.read(reply.read.offset, reply.read.bytes_max)
            return replace(response, records=records) if records else response
        assert isinstance(response, FetchSnapshotResponse)
        read = reply.read
        return replace(
            response,
            data=self.log.read_snapshot(read.snapshot_id, read.position, read.bytes_max),
        )

    # --- a power cut among the effects --------------------------------------------------------

    def _perform_in_part(
        self, event: Event, effects: Effects
    ) -> tuple[list[tuple[int, Response]], Effects]:
        """Perform one effect after the other for as long as there is power."""
        if effects.truncate_to is not None and self._has_power():
            self._truncate(effects.truncate_to)
        for append in effects.append:
            if self._has_power():
                self._append(append)
        if effects.snapshot_chunk is not None and self._has_power():
            self._write_chunk(effects)
        if effects.persist_election is not None and self._has_power():
            self._keep_election(effects.persist_election)
        if effects.flush and not self.is_cut:
            self.wants_flush = True
            if self.flushes_at_once:
                self.log.flush()
                self.wants_flush = False
        answers = [
            (reply.token, self._answer(reply)) for reply in effects.replies if self._has_power()
        ]
        effects.messages = [outgoing for outgoing in effects.messages if self._has_power()]
        if not self.is_cut and self._invariants is not None:
            node_id = self.identity.node_id
            self._invariants.check(node_id, self.running, self.log, self.election, event, effects)
        return answers, effects

    def _has_power(self) -> bool:
        """Pass one boundary; say whether there is still power behind it."""
        if self._boundary_count == 0:
            self.is_cut = True
        else:
            self._boundary_count -= 1
        return not self.is_cut


def entries_of(append: Append) -> tuple[Entry, ...]:
    """Return the entries that an append asks for."""
    if isinstance(append, FollowerAppend | LeaderAppend):
        assert isinstance(append.records, Entries)
        return append.records
    return (Entry(append.leader_epoch, f"leader {append.leader_id}", True),)
