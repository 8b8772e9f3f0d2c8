"""Performer of the effects of one step of a quorum core, in their fixed order. It calls the ports
of a driver: the methods that act on disk, network and application.

Every driver uses this module: the quorum member of a process, the tests' random runs of the core,
and the fuzzers differ only in their ports. Ports that do no real I/O never suspend, so `run_now`
can perform them without an event loop. The caller performs one step at a time, each with all its
effects.

PersistedBeforeAnswered follows from this order. After a failed step a replica must not answer, so
every failure except a refused append is passed to `EffectPorts.fail`.
"""

from contextlib import suppress
from typing import NoReturn, Protocol

from ottla.model.errors import RefusedError
from ottla.model.ids import Offset
from ottla.raft.effects import (
    Append,
    Effects,
    OutgoingRequest,
    ReadLog,
    RejectedResponse,
    Reply,
    RoleChange,
    SnapshotChunk,
)
from ottla.raft.election_state import ElectionState
from ottla.raft.events import AppendRequested, Event, ResignRequested
from ottla.raft.messages import Records
from ottla.raft.quorum import QuorumCore


class EffectPorts(Protocol):
    """Methods of a driver that perform the effects of one step of a quorum core. There is one
    method for each kind of effect on the disk, the network, the application and the timer."""

    @property
    def is_out_of_space(self) -> bool:
        """True if the metadata log's disk is too full for another record."""
        ...

    async def truncate_to(self, offset: Offset, /) -> None:
        """Truncate the metadata log to an offset."""
        ...

    def append(self, append: Append, /) -> None:
        """Append batches to the metadata log without flushing it."""
        ...

    async def write_chunk(self, chunk: SnapshotChunk, /) -> None:
        """Write one chunk of the leader's snapshot.

        After the last chunk the snapshot replaces the log.
        """
        ...

    async def write_election(self, state: ElectionState, /) -> None:
        """Write the epoch, the vote and the leader to `quorum-state` durably."""
        ...

    def flush_soon(self) -> None:
        """Flush the metadata log, now or in the background. The event `LogFlushed` reports the
        end."""
        ...

    async def read_log(self, read: ReadLog, /) -> Records:
        """Return the log entries for a fetch. Raises RefusedError if they were deleted."""
        ...

    def answer(self, reply: Reply, /) -> None:
        """Send the response to a request of another node. If its `read` is a `ReadSnapshot`, the
        driver may perform that read later."""
        ...

    def send(self, outgoing: OutgoingRequest, /) -> None:
        """Send a request to a voter, without waiting for the response."""
        ...

    def commit(self, high_watermark: Offset, /) -> None:
        """Pass the entries that are committed below the new high watermark to the state machine."""
        ...

    def reject_response(self, rejection: RejectedResponse, /) -> None:
        """Report to operators that a response was rejected because its content is impossible."""
        ...

    def change_role(self, change: RoleChange, /) -> None:
        """Report this replica's new role, epoch or leader to the application."""
        ...

    def wake_at(self, wake_ms: int | None, /) -> None:
        """Schedule the next `Tick` event for the monotonic time `wake_ms`, or cancel it if
        `wake_ms` is None."""
        ...

    def fail(self, error: Exception, /) -> NoReturn:
        """Stop this replica because of `error`, and raise an exception to the caller of the
        step."""
        ...


async def take_step(core: QuorumCore, event: Event, now_ms: int, ports: EffectPorts) -> Effects:
    """Pass an event to the quorum core, perform the effects of the resulting step, and return them.

    Raises RefusedError if the core refuses an AppendRequested; nothing has changed in that case.
    """
    is_refusable = isinstance(event, AppendRequested)
    try:
        effects = core.step(event, now_ms)
        is_refusable = False
        await perform(effects, ports)
        if ports.is_out_of_space and core.is_leader:
            # A leader on a full disk would prevent another replica from leading.
            await perform(core.step(ResignRequested(epoch=core.epoch), now_ms), ports)
    except Exception as error:
        if is_refusable and isinstance(error, RefusedError):
            raise
        ports.fail(error)
    return effects


async def perform(effects: Effects, ports: EffectPorts) -> None:
    """Perform the effects of a step in the order append, flush, send, apply."""
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
    if effects.rejected is not None:
        ports.reject_response(effects.rejected)
    if effects.role_change is not None:
        ports.change_role(effects.role_change)
    ports.wake_at(effects.next_wake_ms)


async def _with_records(reply: Reply, ports: EffectPorts) -> Reply:
    """Return the reply with the log records that its `read` requests. The records are read before
    the step ends, so that they belong to the epoch in the reply."""
    if not isinstance(reply.read, ReadLog):
        return reply
    records: Records = b""
    with suppress(RefusedError):  # the offset was deleted: the sender retries
        records = await ports.read_log(reply.read)
    return reply.filled(records)
