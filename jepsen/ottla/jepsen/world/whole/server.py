"""The world's server: hosts the broker's connections over byte streams in memory.

What `broker/network/server_driver.py` does with an epoll and sockets, this does with streams; the
hosting of connections is the same code.  A request that meets a bug of ours is not only the end of
its connection here but of the run, as every unexpected error of a node is.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NoReturn, TypeVar

import trio

from ottla.broker.network.connection_limits import ConnectionLimits
from ottla.broker.network.dispatch import Dispatcher, NotServedYetError, Peer
from ottla.broker.network.hosting_driver import REQUEST_MEMORY_BYTES_MAX, ConnectionServer
from ottla.broker.network.listener import HandshakeFailedError, Listener, ListenerTls
from ottla.broker.network.server_seam import Admission, AdmitAll, OpenServer
from ottla.jepsen.world.whole.channels import EncryptedChannel, StreamChannel
from ottla.jepsen.world.whole.encryption import Encryption
from ottla.jepsen.world.whole.streams import Ports, Stream
from ottla.model.errors import ProtocolError
from ottla.model.seams import Clock
from ottla.storage.disk_seam import Disk
from ottla.storage.slice import SliceError

T = TypeVar("T")

HANDSHAKE_COST_MS = 1.0
"""How long a step of a handshake holds the loop, about as in reality."""


async def _at_once(work: Callable[[], T]) -> T:
    """Do what the real server does in a thread: here it takes no time."""
    return work()


class _HandshakeCost:
    """A stopwatch by which a step of a handshake takes its time: from one look to the next."""

    def __init__(self, step_ms: float) -> None:
        self._step_ns = int(step_ms * 1_000_000)
        self._now_ns = 0

    def now_ns(self) -> int:
        """Return the time, later than at any look before."""
        self._now_ns += self._step_ns
        return self._now_ns


class MachineServer(ConnectionServer[StreamChannel]):
    """Serves the clients of one process; satisfies the seam `Server`."""

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
            run_apart=_at_once,
            now_ns=_HandshakeCost(
                HANDSHAKE_COST_MS if encryption is None else encryption.handshake_cost_ms
            ).now_ns,
        )
        self._encryption = encryption
        self._is_closing = False
        self._has_reason = False
        """Whether the client that is parted from now asked before the broker served, or for bytes
        of a file that cannot be read."""
        self._admission = admission
        self._knocking: list[tuple[Listener, Stream]] = []
        self._work = trio.Event()
        self._parting: dict[Stream, None] = {}
        """Those of failed handshakes, whose clients are to read why."""

    def reconsider_doors(self) -> None:
        """Do nothing: here no connection waits to be accepted."""

    async def run(self) -> NoReturn:
        """Serve what is ready, each connection once a turn."""
        self.start_tasks()
        while True:
            await self._work.wait()
            self._work = trio.Event()
            self._dispatcher.turn_end.begin()
            now_ms = self._clock.monotonic_ms()
            knocking, self._knocking = self._knocking, []
            for listener, stream in knocking:
                self._accept(listener, stream, now_ms)
            ready, self._ready = self._ready, {}
            for channel in ready:
                self._serve(self._on_ready, channel, 0, now_ms)
            if self._handshakes.has_queue:
                self._shake_hands(now_ms)
            if self._may_shake_hands:
                self._work.set()
            self._dispatcher.turn_end.end(self._errors)

    def close(self) -> None:
        """Hang up on everybody."""
        self._is_closing = True
        for channel in list(self._hosted):
            self._close(channel)
        for _, stream in self._knocking:
            stream.abort()
        for stream in list(self._parting):
            self._part(stream)

    def knock(self, listener: Listener, stream: Stream) -> None:
        """Take up a new connection in the next turn."""
        self._knocking.append((listener, stream))
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
            self._make_way(admission.protected_listener)

    def _channel(self, stream: Stream, tls: ListenerTls | None) -> StreamChannel:
        if tls is None:
            return StreamChannel(self, stream)
        if self._encryption is not None:
            # Tickets are of lengths that chance decides, and no client comes back with one.
            tls.context.num_tickets = 0
            tls.context.options |= ssl.OP_NO_TICKET
        return EncryptedChannel(self, stream, tls)

    def _on_ready(self, channel: StreamChannel, _: int, now_ms: int) -> None:
        """Take up what is held, read and serve what came, and send what may leave."""
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

    def _part_from(self, channel: StreamChannel, now_ms: int) -> None:
        """Forget a channel whose handshake has failed, in such a way that its client reads why."""
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
        """Close a connection as sockets do; a disk that fails as asked is reason enough."""
        self._has_reason = isinstance(fault, SliceError)
        super().on_fault(channel, fault)
        self._has_reason = False

    def _close(self, channel: StreamChannel) -> None:
        self._judge_end(channel)
        super()._close(channel)

    def _judge_end(self, channel: StreamChannel) -> None:
        """Note when a client is hung up on that is still there, and has done nothing wrong."""
        if self._encryption is None or self._is_closing or self._has_reason:
            return
        stream = channel.stream
        has_gone = stream.is_broken or stream.has_ended or channel.connection.is_finished
        if channel in self._hosted and not channel.is_shaking and not has_gone:
            self._encryption.on_hung_up(channel.connection.peer.peer_host, "nothing was wrong")

    def shakes_since(self, since_ms: int) -> bool:
        """Return whether a handshake that began before that time has not ended."""
        return any(
            channel.is_shaking and channel.connection.last_active_ms < since_ms
            for channel in self._hosted
        )

    def _shake_hand(self, channel: StreamChannel, mask: int, now_ms: int) -> None:
        super()._shake_hand(channel, mask, now_ms)
        if not channel.is_shaking and self._encryption is not None:
            self._encryption.on_handshake(channel.connection.peer.peer_host)

    def give_up(self, channel: StreamChannel, reason: str) -> None:
        """Close a connection that holds too much for too long."""
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


class _Door:
    """A listener of a server, at its address."""

    def __init__(self, server: MachineServer, listener: Listener) -> None:
        self._server = server
        self._listener = listener

    def on_knock(self, stream: Stream) -> None:
        """Hand a new connection to the server's own task."""
        if self._listener.tls is not None:
            stream.seal()
        self._server.knock(self._listener, stream)


def server_opener(ports: Ports, encryption: Encryption | None = None) -> OpenServer:
    """Return what opens one machine's server; `encryption` is that of its run, if it has any."""

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
            doors = []
            try:
                for listener in listeners:
                    door = _Door(server, listener)
                    ports.open(listener.host, listener.port, door)
                    doors.append(door)
                    server.addresses[listener.name] = (listener.host, listener.port)
                nursery.start_soon(server.run)
                yield server
                nursery.cancel_scope.cancel()
            finally:
                for door in doors:
                    ports.close(door)
                server.close()

    return open_machine_server
