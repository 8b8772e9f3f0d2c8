"""Steps a core and performs its effects, in the one order there is, through a driver's ports.

Every driver performs here: the member of a quorum at work, the walks of the world and the fuzzers
differ in their ports only.  A port that has nothing to wait for never suspends, so without a loop
`run_now` does.  The caller keeps steps apart: one at a time, each with all of its effects.

PersistedBeforeAnswered holds by this order.  The edge: a step that fails leaves a replica that must
not answer, so whatever goes wrong in it reaches `EffectPorts.fail`, but an append that the core
refuses.
"""

from contextlib import suppress
from typing import NoReturn, Protocol

from ottla.model.errors import RefusedError
from ottla.model.ids import Offset
from ottla.raft.effects import (
    Append,
    Disbelief,
    Effects,
    Outgoing,
    ReadLog,
    Reply,
    RoleChange,
    SnapshotChunk,
)
from ottla.raft.election_state import ElectionState
from ottla.raft.events import AppendRequested, Event, ResignRequested
from ottla.raft.messages import Records
from ottla.raft.quorum import QuorumCore


class EffectPorts(Protocol):
    """Performers of one effect each: a disk, a network, an application and a timer."""

    @property
    def lacks_room(self) -> bool:
        """Whether the disk is too full for another record."""
        ...

    async def truncate_to(self, offset: Offset, /) -> None:
        """Cut off the log from an offset on."""
        ...

    def append(self, append: Append, /) -> None:
        """Append without flushing."""
        ...

    async def write_chunk(self, chunk: SnapshotChunk, /) -> None:
        """Write a part of the leader's snapshot; the last one takes the log's place."""
        ...

    async def write_election(self, state: ElectionState, /) -> None:
        """Make epoch, vote and leader durable."""
        ...

    def flush_soon(self) -> None:
        """Have the log flushed, now or in the background; the end is told by `Flushed`."""
        ...

    async def read_log(self, read: ReadLog, /) -> Records:
        """Return what a fetching replica lacks.  Raises RefusedError if that is gone."""
        ...

    def answer(self, reply: Reply, /) -> None:
        """Answer a request; of `read` only a `ReadSnapshot` is left, which may be done later."""
        ...

    def send(self, outgoing: Outgoing, /) -> None:
        """Send a request to a voter."""
        ...

    def commit(self, high_watermark: Offset, /) -> None:
        """Hand what is committed to the state machine."""
        ...

    def disbelieve(self, disbelief: Disbelief, /) -> None:
        """Report an answer that cannot be true."""
        ...

    def change_role(self, change: RoleChange, /) -> None:
        """Report the new role to the application."""
        ...

    def wake_at(self, wake_ms: int | None, /) -> None:
        """Plan the next `Tick`."""
        ...

    def fail(self, error: Exception, /) -> NoReturn:
        """End this replica; raise what the step's caller gets."""
        ...


async def take_step(core: QuorumCore, event: Event, now_ms: int, ports: EffectPorts) -> Effects:
    """Step the core, perform the effects and return them.

    Raises RefusedError if the core refuses an AppendRequested; nothing has changed then.
    """
    is_refusable = isinstance(event, AppendRequested)
    try:
        effects = core.step(event, now_ms)
        is_refusable = False
        await perform(effects, ports)
        if ports.lacks_room and core.is_leader:
            # A leader without room for a record keeps another from leading.
            await perform(core.step(ResignRequested(epoch=core.epoch), now_ms), ports)
    except Exception as error:
        if is_refusable and isinstance(error, RefusedError):
            raise
        ports.fail(error)
    return effects


async def perform(effects: Effects, ports: EffectPorts) -> None:
    """Perform effects in the order append, flush, send, apply."""
    if effects.truncate_to is not None:
        await ports.truncate_to(effects.truncate_to)
    for append in effects.append:
        ports.append(append)
    if effects.snapshot_chunk is not None:
        await ports.write_chunk(effects.snapshot_chunk)
    if effects.persist_election is not None:
        await ports.write_election(effects.persist_election)
    if effects.flush:
        ports.flush_soon()
    for reply in effects.replies:
        ports.answer(await _with_records(reply, ports))
    for outgoing in effects.messages:
        ports.send(outgoing)
    if effects.high_watermark is not None:
        ports.commit(effects.high_watermark)
    if effects.disbelieved is not None:
        ports.disbelieve(effects.disbelieved)
    if effects.role_change is not None:
        ports.change_role(effects.role_change)
    ports.wake_at(effects.next_wake_ms)


async def _with_records(reply: Reply, ports: EffectPorts) -> Reply:
    """Read the log within the step: what is read belongs to the epoch that the answer names."""
    if not isinstance(reply.read, ReadLog):
        return reply
    records: Records = b""
    with suppress(RefusedError):  # an offset that went meanwhile: the asker asks again
        records = await ports.read_log(reply.read)
    return reply.filled(records)
