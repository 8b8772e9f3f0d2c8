"""Ports through which raft's effects are performed: on the log files, on waiting requests, and on
the time of the next tick.

Flushes run one at a time, in parallel to other effects. No file is changed while it is being
flushed.
"""

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import trio

from ottla.model import log_events
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.seams import Clock
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum.quorum_meter import QuorumMeter
from ottla.raft.effects import (
    Append,
    OutgoingRequest,
    ReadLog,
    ReadSnapshot,
    RejectedResponse,
    Reply,
    RoleChange,
    SnapshotChunk,
)
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import Records, Response
from ottla.raft.transitions import Standing

NO_ROOM_PAUSE_MS = 500
"""Pause in ms before a quorum member with a full disk retries an operation, such as a fetch of
records. With a shorter pause, more attempts fail; with a longer one, the member notices freed space
later."""

PROMISE_SYNC_MS = 100
"""Time in ms after which an end offset that a voter has acknowledged survives a power loss.  With a
longer time, more records could be damaged by the same power loss without being noticed.  With a
shorter time, fsyncs compete for the disk more often."""

_RISES = {
    Standing.CATCHING_UP: "has asked all others for their epochs and catches up",
    Standing.FULL: "has all that was committed and votes again",
    Standing.AMNESIAC: "has lost its vote",
}

_LOGGER = logging.getLogger(__name__)


class AwaitedReply:
    """Request from another quorum member that waits for the reply of raft's core."""

    __slots__ = ("arrived", "reply", "token")

    def __init__(self, token: int) -> None:
        self.token = token
        self.arrived = trio.Event()
        self.reply: Reply | None = None


class QuorumPorts:
    """Ports that perform the effects of raft's core for one quorum member
    (`ottla.raft.performer.EffectPorts`)."""

    def __init__(
        self,
        log: MetadataLog,
        *,
        clock: Clock,
        meter: QuorumMeter,
        is_leader: Callable[[], bool],
        send: Callable[[OutgoingRequest], None],
        commit: Callable[[Offset], None],
        reject_response: Callable[[RejectedResponse], None],
        change_role: Callable[[RoleChange], None],
        fail: Callable[[Exception], NoReturn],
    ) -> None:
        self.send = send
        self.commit = commit
        self.reject_response = reject_response
        self.change_role = change_role
        self.fail = fail
        self.is_stopped = False
        """True if the quorum member is stopping, so that no task may wait for disk space any
        longer."""
        self._log = log
        self._clock = clock
        self._meter = meter
        self._is_leader = is_leader
        self._flushing = trio.Lock()
        self._flush_wanted = trio.Event()
        self._promised = trio.Event()
        self._tokens = itertools.count(1)
        self._awaited: dict[int, AwaitedReply] = {}
        self._wake_ms: int | None = None
        self._wake_sooner = trio.Event()

    # --- append ------------------------------------------------------------------------------

    @property
    def is_out_of_space(self) -> bool:
        """True if the disk is too full for the next record of the metadata log."""
        return self._log.is_out_of_space

    async def truncate_to(self, offset: Offset, /) -> None:
        """Truncate the metadata log to an offset."""
        async with self._flushing:
            await self._log.truncate_to(offset)

    def append(self, append: Append, /) -> None:
        """Append the records of an effect of raft to the metadata log, without a flush."""
        end_offset = self._log.end_offset
        self._log.append(append)
        self._meter.on_append(
            self._log.end_offset - end_offset,
            self._log.end_offset,
            self._clock.monotonic_ms(),
            is_leader=self._is_leader(),
        )

    async def write_chunk(self, chunk: SnapshotChunk, /) -> None:
        """Write one chunk of the leader's metadata snapshot. On a full disk, waits until space is
        free."""
        async with self._flushing:
            while await self._log.write_chunk(chunk):
                await self._wait_for_room()

    # --- flush -------------------------------------------------------------------------------

    async def write_election(self, state: ElectionState, /) -> None:
        """Durably write the epoch, the vote, the leader, and this voter's standing (whether it may
        still vote and acknowledge records). On a full disk, waits until space is free."""
        promises = self._log.promises
        if promises is not None and promises.checkpoint.election.standing is not state.standing:
            _LOGGER.warning(
                "this controller %s, in epoch %s, with metadata up to offset %s",
                _RISES[state.standing],
                state.epoch,
                self._log.end_offset,
                extra=log_events.event("quorum.standing", standing=state.standing.name.lower()),
            )
        while await self._log.write_election(state):
            # No message may be sent before the state is durable, so the processing of all events
            # waits here.
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        if self.is_stopped:
            raise stopping()
        await trio.sleep(NO_ROOM_PAUSE_MS / 1000)

    def flush_soon(self) -> None:
        """Request a flush of the metadata log, which `flushed` performs."""
        self._flush_wanted.set()

    async def flushed(self, linger_ms: int) -> Offset:
        """Wait until a flush of the metadata log is requested, and `linger_ms` longer; then flush.
        Returns the end offset of the durable records."""
        await self._flush_wanted.wait()
        if linger_ms:
            await trio.sleep(linger_ms / 1000)
        self._flush_wanted = trio.Event()
        async with self._flushing:
            end_offset = await self._log.flush()
        self._promised.set()
        if self._log.awaits_flush:
            self._flush_wanted.set()
            await trio.sleep(NO_ROOM_PAUSE_MS / 1000)
        return end_offset

    async def promises_written(self) -> None:
        """Wait until a flush has written promises of a voter (its vote, and the records that it
        acknowledged). Then wait `PROMISE_SYNC_MS` longer, so that one sync makes the promises of
        several flushes durable."""
        await self._promised.wait()
        await trio.sleep(PROMISE_SYNC_MS / 1000)
        self._promised = trio.Event()

    # --- send --------------------------------------------------------------------------------

    async def read_log(self, read: ReadLog, /) -> Records:
        """Return the records of the metadata log that the fetching replica does not have yet."""
        return await self._log.read(
            read.offset, end_offset=self._log.end_offset, bytes_max=read.bytes_max
        )

    def answer(self, reply: Reply, /) -> None:
        """Wake the request of another quorum member that waits for this reply of the raft core.
        Does nothing if the request was cancelled."""
        awaited = self._awaited.get(reply.token)
        if awaited is not None:
            awaited.reply = reply
            awaited.arrived.set()

    @contextmanager
    def awaiting(self) -> Iterator[AwaitedReply]:
        """Register a request that waits for a reply of the raft core, under a new token. Yields the
        registered request, which is removed at the end of the block."""
        awaited = AwaitedReply(next(self._tokens))
        self._awaited[awaited.token] = awaited
        try:
            yield awaited
        finally:
            del self._awaited[awaited.token]

    async def response_of(self, awaited: AwaitedReply) -> Response:
        """Return the response to another member for a reply of raft's core. Snapshot data that the
        reply needs are read from disk first."""
        reply = awaited.reply
        assert reply is not None
        read = reply.read
        if isinstance(read, ReadSnapshot):
            data = await self._log.read_snapshot(
                read.snapshot_id, position=read.position, bytes_max=read.bytes_max
            )
            reply = reply.filled(data)
        return reply.response

    # --- the next tick -----------------------------------------------------------------------

    def wake_at(self, wake_ms: int | None, /) -> None:
        """Schedule the next tick of raft's core. The waiting task is woken only if the new time is
        earlier than the scheduled one."""
        planned, self._wake_ms = self._wake_ms, wake_ms
        if wake_ms is not None and (planned is None or wake_ms < planned):
            self._wake_sooner.set()

    async def tick_due(self) -> None:
        """Wait until the scheduled tick of raft's core is due."""
        while True:
            wake_ms, self._wake_sooner = self._wake_ms, trio.Event()
            left_ms = float("inf")
            if wake_ms is not None:
                left_ms = max(0, wake_ms - self._clock.monotonic_ms())
            with trio.move_on_after(left_ms / 1000):
                await self._wake_sooner.wait()
                continue
            return


def stopping() -> RefusedError:
    """Return the error for requests to a quorum member that is stopping."""
    return RefusedError(ErrorCode.NETWORK_EXCEPTION, "this member of the quorum is stopping")
