"""The ports of a member of the quorum: the log's files, the requests that wait, and the next tick.

Flushes run beside the steps, one at a time and never beside a change of the files they flush.
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
from ottla.node.metadata_log import MetadataLog
from ottla.node.quorum_meter import QuorumMeter
from ottla.raft.effects import (
    Append,
    Disbelief,
    Outgoing,
    ReadLog,
    ReadSnapshot,
    Reply,
    RoleChange,
    SnapshotChunk,
)
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import Records, Response
from ottla.raft.transitions import Standing

NO_ROOM_PAUSE_MS = 500
"""How long a member waits that has no room for what it fetched, and fetches it again.  Shorter asks
in vain more often, longer delays it when there is room."""

PROMISE_SYNC_MS = 100
"""Time after which a power loss leaves the end of what a voter has acknowledged.  Longer, and more
entries could be damaged unnoticed by the same power loss; shorter, and more fsyncs compete."""

_RISES = {
    Standing.CATCHING_UP: "has asked all others for their epochs and catches up",
    Standing.FULL: "has all that was committed and votes again",
    Standing.AMNESIAC: "has lost its vote",
}

_LOGGER = logging.getLogger(__name__)


class AwaitedReply:
    """A request that waits for raft's reply."""

    __slots__ = ("arrived", "reply", "token")

    def __init__(self, token: int) -> None:
        self.token = token
        self.arrived = trio.Event()
        self.reply: Reply | None = None


class QuorumPorts:
    """The performers of a member's effects (`ottla.raft.performer.EffectPorts`)."""

    def __init__(
        self,
        log: MetadataLog,
        *,
        clock: Clock,
        meter: QuorumMeter,
        is_leader: Callable[[], bool],
        send: Callable[[Outgoing], None],
        commit: Callable[[Offset], None],
        disbelieve: Callable[[Disbelief], None],
        change_role: Callable[[RoleChange], None],
        fail: Callable[[Exception], NoReturn],
    ) -> None:
        self.send = send
        self.commit = commit
        self.disbelieve = disbelieve
        self.change_role = change_role
        self.fail = fail
        self.is_stopped = False
        """Whether nothing more is to be waited for."""
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

    # --- append ----------------------------------------------------------------------------

    @property
    def lacks_room(self) -> bool:
        """Whether the disk is too full for another record."""
        return self._log.lacks_room

    async def truncate_to(self, offset: Offset, /) -> None:
        """Cut off the log from an offset on."""
        async with self._flushing:
            await self._log.truncate_to(offset)

    def append(self, append: Append, /) -> None:
        """Append without flushing."""
        end_offset = self._log.end_offset
        self._log.append(append)
        self._meter.on_append(
            self._log.end_offset - end_offset,
            self._log.end_offset,
            self._clock.monotonic_ms(),
            is_leader=self._is_leader(),
        )

    async def write_chunk(self, chunk: SnapshotChunk, /) -> None:
        """Write a part of the leader's snapshot, when there is room."""
        async with self._flushing:
            while await self._log.write_chunk(chunk):
                await self._wait_for_room()

    # --- flush -----------------------------------------------------------------------------

    async def write_election(self, state: ElectionState, /) -> None:
        """Make epoch, vote, leader and standing durable, when there is room."""
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
            # Nothing may be said before it is remembered, so everything waits.
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        if self.is_stopped:
            raise stopping()
        await trio.sleep(NO_ROOM_PAUSE_MS / 1000)

    def flush_soon(self) -> None:
        """Let `flushed` flush."""
        self._flush_wanted.set()

    async def flushed(self, linger_ms: int) -> Offset:
        """Wait until a flush is wanted, and `linger_ms` for more to flush; return its end."""
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
        """Wait until promises were written after a flush, and a little for more of them."""
        await self._promised.wait()
        await trio.sleep(PROMISE_SYNC_MS / 1000)
        self._promised = trio.Event()

    # --- send ------------------------------------------------------------------------------

    async def read_log(self, read: ReadLog, /) -> Records:
        """Return what a fetching replica lacks."""
        return await self._log.read(
            read.offset, end_offset=self._log.end_offset, bytes_max=read.bytes_max
        )

    def answer(self, reply: Reply, /) -> None:
        """Wake the request that waits for this, if its asker has not gone."""
        awaited = self._awaited.get(reply.token)
        if awaited is not None:
            awaited.reply = reply
            awaited.arrived.set()

    @contextmanager
    def awaiting(self) -> Iterator[AwaitedReply]:
        """Expect the reply to a request, under a new token."""
        awaited = AwaitedReply(next(self._tokens))
        self._awaited[awaited.token] = awaited
        try:
            yield awaited
        finally:
            del self._awaited[awaited.token]

    async def response_of(self, awaited: AwaitedReply) -> Response:
        """Return the response of a reply that has arrived, filled from a snapshot if need be."""
        reply = awaited.reply
        assert reply is not None
        read = reply.read
        if isinstance(read, ReadSnapshot):
            data = await self._log.read_snapshot(
                read.snapshot_id, position=read.position, bytes_max=read.bytes_max
            )
            reply = reply.filled(data)
        return reply.response

    # --- the next tick ---------------------------------------------------------------------

    def wake_at(self, wake_ms: int | None, /) -> None:
        """Plan the next tick; the waiting task is disturbed only when it would be late."""
        planned, self._wake_ms = self._wake_ms, wake_ms
        if wake_ms is not None and (planned is None or wake_ms < planned):
            self._wake_sooner.set()

    async def tick_due(self) -> None:
        """Wait until the planned tick is due."""
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
    """Return the refusal of a member that stops."""
    return RefusedError(ErrorCode.NETWORK_EXCEPTION, "this member of the quorum is stopping")
