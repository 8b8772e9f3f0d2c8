"""Host of a server's connections: it receives bytes, sends responses in order, and limits each
error to one connection.

A transport extends `HostedChannel` with its reads and writes, and `ConnectionHosting` with its
scheduling. Transports are the epoll of the socket server, the byte streams of a simulation, and the
one client of a fuzzer. All other decisions about a connection are made in this module.

No error affects another connection:
- Invalid bytes from a peer close its connection, after earlier responses, and are logged.
- A broken socket closes its connection without a log message.
- An unexpected error closes the connection and is reported to the process's `UnexpectedErrors`.
"""

import errno
import heapq
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from ottla.model.compiled import mypyc_attr
from ottla.model.errors import ProtocolError
from ottla.model.log_limiter import LogLimiter
from ottla.model.seams import Clock
from ottla.node.network.connection import Connection, Pending
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, MalformedRequestError, NotServedYetError, Peer
from ottla.node.network.memory.request_memory import RequestMemory
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.server.pending_work import guarded
from ottla.storage.disk.slice import SliceError
from ottla.wire.codec_types import Message

logger = logging.getLogger("ottla.node.network")

READS_PER_EVENT_MAX = 4
"""Maximum number of reads from one client's transport per event, while it fills a large frame."""

NETWORK_ERRNOS = (
    errno.ECONNABORTED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENOTCONN,
    errno.EPIPE,
    errno.ETIMEDOUT,
)
"""Error numbers of sockets caused by the peer or the network. Such errors are not logged."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HostedChannel(ABC):
    """Transport of one client (such as a socket), and host of the client's connection.

    `ConnectionHosting.host` sets `connection`.
    """

    __slots__ = ("_hosting", "connection")

    def __init__(self, hosting: "ConnectionHosting[Any]") -> None:
        self.connection: Connection
        self._hosting = hosting

    # Implementation of `ConnectionHost`.

    def on_work(self, connection: Connection) -> None:
        """Schedule the connection for the next event-loop iteration."""
        self._hosting.on_work(self)

    def run(self, connection: Connection, slot: ResponseSlot, pending: Pending) -> None:
        """Finish a request handler's pending work, and pass its result to the connection."""
        self._hosting.run_pending(self, slot, pending)

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        """Close the connection after an unexpected error in one of its requests."""
        self._hosting.on_fault(self, fault)

    def give_up(self, connection: Connection, reason: str) -> None:
        """Close the connection because it exceeds a memory or time limit."""
        self._hosting.give_up(self, reason)

    def wake_at(self, connection: Connection, deadline_ms: int) -> None:
        """Schedule the connection for the monotonic time `deadline_ms`, in milliseconds."""
        self._hosting.wake_at(self, deadline_ms)

    # Implemented by the transport.

    @property
    def is_drained(self) -> bool:
        """True if all output of the connection has been sent."""
        return not self.connection.output.byte_count

    @property
    def has_unread(self) -> bool:
        """True if the transport has already received bytes that the connection can read now. No
        further event would announce these bytes."""
        return False

    @property
    @abstractmethod
    def has_more_to_write(self) -> bool:
        """True if output is left because the connection has reached its write limit for this
        event-loop iteration, although the transport would accept more."""

    @abstractmethod
    def read(self, now_ms: int) -> bool:
        """Read once from the transport and pass the bytes to the connection. Returns False at the
        end of the stream.

        Raises OSError from the transport and ProtocolError from the connection.
        """

    @abstractmethod
    def flush(self, now_ms: int) -> None:
        """Write as much of the connection's output as possible without blocking.

        Raises OSError from the transport, and CorruptDataError if a file ends within a slice.
        """

    @abstractmethod
    def close_socket(self) -> None:
        """Close the transport of the connection. Bytes already sent still arrive."""


C = TypeVar("C", bound=HostedChannel)


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectionHosting(ABC, Generic[C]):
    """Client connections of one server. An error in one of them does not affect any other."""

    connection_class: ClassVar[type[Connection]] = Connection

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        limits: ConnectionLimits,
        memory: RequestMemory,
    ) -> None:
        self.memory = memory
        self.accepted_count = 0
        self.closed_for_bad_input_count = 0
        self.closed_for_idleness_count = 0
        self._dispatcher = dispatcher
        self._errors = dispatcher.errors
        self._clock = clock
        self._limits = limits
        self._hosted: dict[C, None] = {}
        self._ready: dict[C, None] = {}
        """Channels (sockets with their connections) to serve in the next event-loop iteration, as
        an ordered set."""
        self._calls: list[tuple[int, int, Callable[[], object]]] = []
        """Heap of functions to call at monotonic times, the earliest first."""
        self._next_call_number = 0
        self._bad_input_lines = LogLimiter()

    # Implemented by the transport.

    @abstractmethod
    def _have_turn(self) -> None:
        """Schedule an event-loop iteration of the server, because a channel (a socket with its
        connection) is ready to be served."""

    @abstractmethod
    def _rearm(self) -> None:
        """Schedule `_on_wakes_due` for the time `_next_wake_ms`, which has become earlier."""

    @abstractmethod
    def run_pending(self, channel: C, slot: ResponseSlot, pending: Pending) -> None:
        """Start a task that finishes a request handler's pending work, by running `_await_pending`
        for a channel."""

    @abstractmethod
    async def _result_of(self, slot: ResponseSlot, pending: Pending) -> Message | None:
        """Return the response from a request handler's pending work, or None if the response slot
        is completed later."""

    @abstractmethod
    def _watch(self, channel: C) -> None:
        """Register the events for which a channel's transport must wait next, such as received
        bytes."""

    @abstractmethod
    def _on_closed(self, channel: C) -> None:
        """Remove a closed channel (a socket with its connection) from the server."""

    # State and metrics.

    @property
    def connection_count(self) -> int:
        """Number of open client connections of the server."""
        return len(self._hosted)

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return the counters of connections that DescribeNode reports."""
        return {
            "network.connections": len(self._hosted),
            "network.connections.accepted": self.accepted_count,
            "network.connections.closed.bad.input": self.closed_for_bad_input_count,
            "network.connections.closed.idle": self.closed_for_idleness_count,
            "network.connections.closed.slow": self.memory.given_up_count_of_all,
            "network.connections.closed.unread": self.memory.unread_count_of_all,
            "network.request.bytes.held": self.memory.held_bytes_of_all,
            "network.response.bytes.held": self.memory.answer_bytes_of_all,
        }

    # One iteration of a connection.

    def host(self, channel: C, peer: Peer, now_ms: int) -> None:
        """Create the connection (parser, queue and limits of one client) over a newly accepted
        channel."""
        channel.connection = self.connection_class(
            peer, self._dispatcher, channel, memory=self.memory, limits=self._limits, now_ms=now_ms
        )
        self._hosted[channel] = None

    def _serve(
        self, step: Callable[[C, int, int], None], channel: C, mask: int, now_ms: int
    ) -> None:
        """Run one step of work for one connection, such as a read. An error closes only that
        connection."""
        try:
            step(channel, mask, now_ms)
        except Exception as error:
            self._on_step_failed(channel, error, now_ms)

    def _on_step_failed(self, channel: C, error: Exception, now_ms: int) -> None:
        """Close a connection after an error in one step of its work."""
        if isinstance(error, ProtocolError):
            self._on_bad_input(channel, error, now_ms)
        else:
            self.on_fault(channel, error)

    def _read(self, channel: C, now_ms: int) -> None:
        """Read from a channel (a transport and its connection), and serve the received bytes."""
        connection = channel.connection
        reads_left = READS_PER_EVENT_MAX
        while channel.read(now_ms):
            reads_left -= 1
            if (
                not connection.frame_bytes
                or not reads_left
                or connection.window() is None
                or not connection.wants_bytes
            ):
                return
        connection.on_eof()

    def _resume(self, channel: C, _: int, now_ms: int) -> None:
        """Serve a connection's delayed requests, and send the ready output."""
        if not channel.connection.is_closed:
            channel.connection.resume(now_ms)
            if channel.has_unread:
                self._read(channel, now_ms)
            self._flush(channel, 0, now_ms)

    def _flush(self, channel: C, _: int, now_ms: int) -> None:
        """Send the ready output of a channel, and register the events for which the channel must
        wait next."""
        connection = channel.connection
        if connection.is_closed:
            return
        if not channel.is_drained:
            self._write(channel, now_ms)
        if (connection.is_closing and channel.is_drained) or connection.is_finished:
            self._close(channel)
            return
        if connection.has_more_to_take_up or channel.has_more_to_write:
            self._ready[channel] = None
        self._watch(channel)

    def _write(self, channel: C, now_ms: int) -> None:
        """Write as much of a connection's output as the transport accepts. The time is charged to
        the client if the client has a quota."""
        charge = channel.connection.charge
        if charge is None:
            channel.flush(now_ms)
            return
        now_ns = self._dispatcher.clock.now_ns
        began_ns = now_ns()
        try:
            channel.flush(now_ms)
        finally:
            charge.note_written(now_ns() - began_ns)

    def _flush_completed(self, now_ms: int) -> None:
        """Send the responses that this event-loop iteration has completed on other connections.
        Delayed requests of those connections are served in the next iteration."""
        completed, self._ready = self._ready, {}
        for channel in completed:
            if not channel.connection.is_closed:
                if channel.connection.awaits_resume:
                    self._ready[channel] = None
                self._serve(self._flush, channel, 0, now_ms)

    # Interface for channels.

    def on_work(self, channel: C) -> None:
        """Schedule the channel (a transport and its connection) for the next event-loop iteration,
        which starts at once."""
        self._ready[channel] = None
        self._have_turn()

    async def _await_pending(self, channel: C, slot: ResponseSlot, pending: Pending) -> None:
        """Finish a request handler's pending work, and pass the result to the connection."""
        response = await guarded(
            self._result_of(slot, pending),
            partial(self._on_malformed, channel),
            partial(self.on_fault, channel),
        )
        try:
            channel.connection.on_coroutine_ended(slot, response)
        except Exception as fault:
            self.on_fault(channel, fault)

    def _on_malformed(self, channel: C, error: MalformedRequestError) -> None:
        self._on_bad_input(channel, error, self._clock.monotonic_ms())

    def wake_at(self, channel: C, deadline_ms: int) -> None:
        """Schedule the channel (a transport and its connection) for the monotonic time
        `deadline_ms`, in milliseconds."""
        self.call_at(deadline_ms, partial(self.on_work, channel))

    def call_at(self, deadline_ms: int, action: Callable[[], object]) -> None:
        """Call `action`, which must be short, at the monotonic time `deadline_ms`, in
        milliseconds."""
        self._next_call_number += 1
        heapq.heappush(self._calls, (deadline_ms, self._next_call_number, action))
        if self._calls[0][0] == deadline_ms:
            self._rearm()

    def _next_wake_ms(self) -> int | None:
        return self._calls[0][0] if self._calls else None

    def _on_wakes_due(self, now_ms: int) -> None:
        while self._calls and self._calls[0][0] <= now_ms:
            heapq.heappop(self._calls)[2]()

    # Closing connections.

    def _on_bad_input(self, channel: C, error: ProtocolError, now_ms: int) -> None:
        """Close a connection whose peer violates Kafka's protocol, after the earlier responses.

        If a client connects before the broker is ready, its connection is closed without a log
        message.
        """
        if not isinstance(error, NotServedYetError):
            self.closed_for_bad_input_count += 1
            peer = channel.connection.peer
            self._log(
                self._bad_input_lines,
                now_ms,
                f"closed connection {peer.label} on {peer.listener_name}: {error.where}",
            )
        try:
            channel.flush(now_ms)
        except Exception as fault:
            self._note(channel, fault)
        self._close(channel)

    def give_up(self, channel: C, reason: str) -> None:
        """Close a connection that uses too much request memory for too long, and log the reason."""
        line = f"closed connection {channel.connection.peer.label}: {reason}"
        self._log(self._bad_input_lines, self._clock.monotonic_ms(), line)
        self._close(channel)

    def on_fault(self, channel: C, fault: BaseException) -> None:
        """Close a connection after an unexpected error in a request, or an error of its
        transport."""
        if not channel.connection.is_closed:
            self._note(channel, fault)
            self._close(channel)

    def _note(self, channel: C, fault: BaseException) -> None:
        if isinstance(fault, SliceError):
            self._dispatcher.on_file_error(fault.filename, fault)
        elif not isinstance(fault, OSError) or fault.errno not in NETWORK_ERRNOS:
            self._errors.note("connection", channel.connection.peer.label, fault)

    def _close_longest_idle(self, protected_listener: str | None) -> None:
        """Close the connection that has been idle longest on an unprotected listener, in favour of
        a connection on the protected (inter-broker) listener."""
        others = (one for one in self._hosted if self._listener_of(one) != protected_listener)
        silent = min(others, key=lambda one: one.connection.last_active_ms, default=None)
        if silent is not None:
            self.give_up(silent, "a connection of the listener of brokers needs its place")

    @staticmethod
    def _listener_of(channel: C) -> str:
        return channel.connection.peer.listener_name

    def _close(self, channel: C) -> None:
        if channel not in self._hosted:
            return
        del self._hosted[channel]
        self._ready.pop(channel, None)
        try:
            channel.close_socket()
            channel.connection.close()
        except Exception as fault:
            self._errors.note("connection", channel.connection.peer.label, fault)
        self._on_closed(channel)

    def _log(self, lines: LogLimiter, now_ms: int, line: str) -> None:
        suppressed_count = lines.admit(now_ms)
        if suppressed_count is None:
            return
        if suppressed_count:
            line += f" ({suppressed_count} such lines were left out before)"
        logger.warning(line)
