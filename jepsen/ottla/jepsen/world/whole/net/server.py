"""The simulated server: hosts the broker's connections over byte streams in memory.

It corresponds to `network/server/server_driver.py`, which uses epoll and sockets, and shares the
code that hosts connections. If the handling of a request raises an unexpected error, the whole run
ends, as after every unexpected error of a node.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NoReturn, TypeVar

import trio

from ottla.jepsen.world.whole.encryption import Encryption
from ottla.jepsen.world.whole.net.channels import EncryptedChannel, StreamChannel
from ottla.jepsen.world.whole.net.streams import Ports, Stream
from ottla.model.errors import ProtocolError
from ottla.model.seams import Clock
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, NotServedYetError, Peer
from ottla.node.network.listener import HandshakeFailedError, Listener, ListenerTls
from ottla.node.network.server.hosting_driver import REQUEST_MEMORY_BYTES_MAX, ConnectionServer
from ottla.node.network.server.server_seam import Admission, AdmitAll, OpenServer
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.slice import SliceError

T = TypeVar("T")

HANDSHAKE_COST_MS = 1.0
"""Virtual time in ms for which a step of a TLS handshake occupies the event loop, about as in
reality."""


async def _at_once(work: Callable[[], T]) -> T:
    """Run `work` and return its result. The real server runs it in a thread; the simulated server
    runs it immediately, in no virtual time."""
    return work()


class _HandshakeCost:
    """Stopwatch that measures a fixed duration for each step of a TLS handshake."""

    def __init__(self, step_ms: float) -> None:
        self._step_ns = int(step_ms * 1_000_000)
        self._now_ns = 0

    def now_ns(self) -> int:
        """Return a time in ns that increases with every call."""
        self._now_ns += self._step_ns
        return self._now_ns


class MachineServer(ConnectionServer[StreamChannel]):
    """Server for the Kafka clients of one simulated process. Implements the protocol `Server`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        limits: ConnectionLimits | None,
        request_memory_bytes_max: int,
        idle_ms_max: int,
        admission: Admission,
        nursery: trio.Nursery,
        encryption: Encryption | None,
    ) -> None:
        super().__init__(
            dispatcher,
            clock=clock,
            limits=limits,
            request_memory_bytes_max=request_memory_bytes_max,
            idle_ms_max=idle_ms_max,
            nursery=nursery,
            run_in_thread=_at_once,
            now_ns=_HandshakeCost(
                HANDSHAKE_COST_MS if encryption is None else encryption.handshake_cost_ms
            ).now_ns,
        )
        self._encryption = encryption
        self._is_closing = False
        self._has_reason = False
        """True if the broker has a reason to disconnect the client: the client sent a request
        before the broker served, or requested bytes of a file that cannot be read."""
        self._admission = admission
        self._pending_connections: list[tuple[Listener, Stream]] = []
        self._work = trio.Event()
        self._parting: dict[Stream, None] = {}
        """Streams of connections whose TLS handshake failed. They stay open for a while, so that
        the clients can read the alert."""

    def resume_accepting(self) -> None:
        """Do nothing, because no connection waits to be accepted in the simulator."""

    async def run(self) -> NoReturn:
        """Serve the clients' channels that are ready, each once per event-loop iteration."""
        self.start_tasks()
        while True:
            await self._work.wait()
            self._work = trio.Event()
            self._dispatcher.turn_end.begin()
            now_ms = self._clock.monotonic_ms()
            pending, self._pending_connections = self._pending_connections, []
            for listener, stream in pending:
                self._accept(listener, stream, now_ms)
            ready, self._ready = self._ready, {}
            for channel in ready:
                self._serve(self._on_ready, channel, 0, now_ms)
            if self._handshakes.queued:
                self._shake_hands(now_ms)
            if self._may_shake_hands:
                self._work.set()
            self._dispatcher.turn_end.end(self._errors)

    def close(self) -> None:
        """Close all connections of clients."""
        self._is_closing = True
        for channel in list(self._hosted):
            self._close(channel)
        for _, stream in self._pending_connections:
            stream.abort()
        for stream in list(self._parting):
            self._part(stream)

    def enqueue(self, listener: Listener, stream: Stream) -> None:
        """Queue a client's new connection to `listener`, which is accepted in the next event-loop
        iteration."""
        self._pending_connections.append((listener, stream))
        self._work.set()

    def _accept(self, listener: Listener, stream: Stream, now_ms: int) -> None:
        admission, name = self._admission, stream.peer.host_name
        if (
            admission.wait_ms(listener.name, now_ms) is None
            or admission.admit(listener.name, name, now_ms) is not None
        ):
            stream.abort()
            return
        self.accepted_count += 1
        host, port = self.addresses[listener.name]
        peer = Peer(
            connection_id=self.accepted_count,
            listener_name=listener.name,
            peer_host=name,
            peer_port=stream.peer.port,
            local_host=host,
            local_port=port,
        )
        channel = self._channel(stream, listener.tls)
        self.host(channel, peer, now_ms)
        if channel.is_shaking:
            self._begin_handshake(channel, now_ms)
        stream.on_arrival = partial(self.on_work, channel)
        self.on_work(channel)
        if admission.has_excess and listener.name == admission.protected_listener:
            self._close_longest_idle(admission.protected_listener)

    def _channel(self, stream: Stream, tls: ListenerTls | None) -> StreamChannel:
        if tls is None:
            return StreamChannel(self, stream)
        if self._encryption is not None:
            # Session tickets have random lengths, and no client resumes a session.
            tls.context.num_tickets = 0
            tls.context.options |= ssl.OP_NO_TICKET
        return EncryptedChannel(self, stream, tls)

    def _on_ready(self, channel: StreamChannel, _: int, now_ms: int) -> None:
        """Serve one client's channel: handle requests that were held back, read and serve received
        bytes, and send as many bytes as the peer's backlog limit allows."""
        if channel.connection.is_closed:
            return
        if channel.stream.is_broken:
            self._close(channel)
            return
        if channel.is_shaking:
            self._handshakes.queue(channel)
            return
        channel.connection.resume(now_ms)
        if channel.connection.wants_bytes:
            self._read(channel, now_ms)
        self._flush(channel, 0, now_ms)

    def _drop_after_failed_handshake(self, channel: StreamChannel, now_ms: int) -> None:
        """Drop a client's channel whose TLS handshake failed. Its stream is closed only after a
        delay, so that the client can still read the alert."""
        assert isinstance(channel, EncryptedChannel)
        stream = channel.release()
        self._close(channel)
        self._parting[stream] = None
        self.call_at(now_ms + channel.tls.failure_delay_ms, partial(self._part, stream))

    def _note_failed_handshake(
        self, peer: Peer, tls: ListenerTls, error: HandshakeFailedError, now_ms: int
    ) -> None:
        super()._note_failed_handshake(peer, tls, error, now_ms)
        if self._encryption is not None:
            self._encryption.on_refused(peer.peer_host, error)

    def _on_bad_input(self, channel: StreamChannel, error: ProtocolError, now_ms: int) -> None:
        self._has_reason = isinstance(error, NotServedYetError)
        if self._encryption is not None and not self._has_reason:
            self._encryption.on_bad_input(channel.connection.peer.peer_host, error)
        super()._on_bad_input(channel, error, now_ms)
        self._has_reason = False

    def on_fault(self, channel: StreamChannel, fault: BaseException) -> None:
        """Close a client's connection whose handling raised an error. An error from reading a file
        is a valid reason to close it, because only an injected disk fault causes such an error."""
        self._has_reason = isinstance(fault, SliceError)
        super().on_fault(channel, fault)
        self._has_reason = False

    def _close(self, channel: StreamChannel) -> None:
        self._judge_end(channel)
        super()._close(channel)

    def _judge_end(self, channel: StreamChannel) -> None:
        """Record a violation if the broker disconnects a running client that did nothing wrong."""
        if self._encryption is None or self._is_closing or self._has_reason:
            return
        stream = channel.stream
        has_gone = stream.is_broken or stream.has_ended or channel.connection.is_finished
        if channel in self._hosted and not channel.is_shaking and not has_gone:
            self._encryption.on_hung_up(channel.connection.peer.peer_host, "nothing was wrong")

    def shakes_since(self, since_ms: int) -> bool:
        """Return whether a TLS handshake that began before `since_ms` (virtual time) is still
        unfinished."""
        return any(
            channel.is_shaking and channel.connection.last_active_ms < since_ms
            for channel in self._hosted
        )

    def _shake_hand(self, channel: StreamChannel, mask: int, now_ms: int) -> None:
        super()._shake_hand(channel, mask, now_ms)
        if not channel.is_shaking and self._encryption is not None:
            self._encryption.on_handshake(channel.connection.peer.peer_host)

    def give_up(self, channel: StreamChannel, reason: str) -> None:
        """Close a client's connection, for the reason `reason`. During a TLS handshake, record that
        the handshake is overdue."""
        if channel.is_shaking and self._encryption is not None:
            self._encryption.on_overdue()
        super().give_up(channel, reason)

    def _part(self, stream: Stream) -> None:
        if stream in self._parting:
            del self._parting[stream]
            stream.close_now()

    def _have_turn(self) -> None:
        self._work.set()

    def _watch(self, channel: StreamChannel) -> None:
        stream = channel.stream
        is_readable = stream.has_bytes or stream.has_ended or channel.has_unread
        is_wanted = channel.is_shaking or channel.connection.wants_bytes
        if channel in self._ready or (is_readable and is_wanted):
            self.on_work(channel)

    def _on_closed(self, channel: StreamChannel) -> None:
        self._handshakes.end(channel)
        peer = channel.connection.peer
        self._admission.on_closed(peer.listener_name, peer.peer_host)


class _ListenerAcceptor:
    """A listener of a server, which accepts connections to its address."""

    def __init__(self, server: MachineServer, listener: Listener) -> None:
        self._server = server
        self._listener = listener

    def on_connect(self, stream: Stream) -> None:
        """Pass a client's new connection to the server's task, which accepts it."""
        if self._listener.tls is not None:
            stream.seal()
        self._server.enqueue(self._listener, stream)


def server_opener(ports: Ports, encryption: Encryption | None = None) -> OpenServer:
    """Return a function that opens the server of one machine. `encryption` is the TLS configuration
    of the run, if it has one."""

    @asynccontextmanager
    async def open_machine_server(
        listeners: Sequence[Listener],
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        disk: Disk,
        limits: ConnectionLimits | None = None,
        request_memory_bytes_max: int = REQUEST_MEMORY_BYTES_MAX,
        idle_ms_max: int = 600_000,
        admission: Admission | None = None,
        backlog: int = 50,
    ) -> AsyncIterator[MachineServer]:
        async with trio.open_nursery() as nursery:
            server = MachineServer(
                dispatcher,
                clock=clock,
                limits=limits,
                request_memory_bytes_max=request_memory_bytes_max,
                idle_ms_max=idle_ms_max,
                admission=admission or AdmitAll(),
                nursery=nursery,
                encryption=encryption,
            )
            acceptors = []
            try:
                for listener in listeners:
                    acceptor = _ListenerAcceptor(server, listener)
                    ports.open(listener.host, listener.port, acceptor)
                    acceptors.append(acceptor)
                    server.addresses[listener.name] = (listener.host, listener.port)
                nursery.start_soon(server.run)
                yield server
                nursery.cancel_scope.cancel()
            finally:
                for acceptor in acceptors:
                    ports.close(acceptor)
                server.close()

    return open_machine_server
