"""The world's server: hosts the broker's connections over byte streams in memory.

What `broker/network/server_driver.py` does with an epoll and sockets, this does with streams; the
hosting of connections is the same code.  A request that meets a bug of ours is not only the end of
its connection here but of the run, as every unexpected error of a node is.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NoReturn, TypeVar

import trio

from ottla.broker.network.connection import ConnectionLimits
from ottla.broker.network.dispatch import Dispatcher, Peer
from ottla.broker.network.hosting import ConnectionHosting, HostedChannel
from ottla.broker.network.hosting_driver import REQUEST_MEMORY_BYTES_MAX, ConnectionServer
from ottla.broker.network.listener import Listener
from ottla.broker.network.server_seam import Admission, AdmitAll, OpenServer
from ottla.jepsen.world.whole.streams import BACKLOG_BYTES_MAX, Ports, Stream
from ottla.model.limits import KIB
from ottla.model.seams import Clock
from ottla.storage.disk_seam import Disk
from ottla.storage.workbench import bytes_of

READ_BYTES = 256 * KIB
"""What one turn takes from a stream."""

T = TypeVar("T")


async def _at_once(work: Callable[[], T]) -> T:
    """Do what the real server does in a thread: here it takes no time."""
    return work()


class _Channel(HostedChannel):
    """One client's stream and connection."""

    __slots__ = ("stream",)

    def __init__(self, hosting: ConnectionHosting["_Channel"], stream: Stream) -> None:
        super().__init__(hosting)
        self.stream = stream

    @property
    def has_more_to_write(self) -> bool:
        """Return False: only a peer that does not read holds output back."""
        return False

    def read(self, now_ms: int) -> bool:
        """Hand on what has come; return False at the end of the stream."""
        if not self.stream.has_bytes:
            return not self.stream.has_ended
        # Writable and ours: the log patches batches where they lie.
        self.connection.on_bytes(memoryview(bytearray(self.stream.take(READ_BYTES))), now_ms)
        self.connection.has_lent_buffer = False
        return True

    def flush(self, now_ms: int) -> None:
        """Send what the peer has room for."""
        output = self.connection.output
        while output.byte_count:
            if self.stream.backlog_bytes >= BACKLOG_BYTES_MAX:
                self.connection.on_stalled()
                return
            pieces = output.next_bytes(bytes_of)
            if pieces:
                data = b"".join(pieces)
            else:
                piece, sent_before = output.next_slice()
                data = bytes_of(piece)[sent_before:]
            self.stream.send_now(data)
            self.connection.on_sent(len(data), now_ms)

    def hang_up(self) -> None:
        """Close the stream; what was sent still arrives."""
        self.stream.on_arrival = None
        self.stream.close_now()


class MachineServer(ConnectionServer[_Channel]):
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
    ) -> None:
        super().__init__(
            dispatcher,
            clock=clock,
            limits=limits,
            request_memory_bytes_max=request_memory_bytes_max,
            idle_ms_max=idle_ms_max,
            nursery=nursery,
            run_apart=_at_once,
        )
        self._admission = admission
        self._knocking: list[tuple[Listener, Stream]] = []
        self._work = trio.Event()

    def reconsider_doors(self) -> None:
        """Do nothing: here no connection waits to be accepted."""

    async def run(self) -> NoReturn:
        """Serve what is ready, each connection once a turn."""
        self.start_tasks()
        while True:
            await self._work.wait()
            self._work = trio.Event()
            now_ms = self._clock.monotonic_ms()
            knocking, self._knocking = self._knocking, []
            for listener, stream in knocking:
                self._accept(listener, stream, now_ms)
            ready, self._ready = self._ready, {}
            for channel in ready:
                self._serve(self._on_ready, channel, 0, now_ms)

    def close(self) -> None:
        """Hang up on everybody."""
        for channel in list(self._hosted):
            self._close(channel)
        for _, stream in self._knocking:
            stream.abort()

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
        channel = _Channel(self, stream)
        self.host(channel, peer, now_ms)
        stream.on_arrival = partial(self.on_work, channel)
        self.on_work(channel)
        if admission.has_excess and listener.name == admission.protected_listener:
            self._make_way(admission.protected_listener)

    def _on_ready(self, channel: _Channel, _: int, now_ms: int) -> None:
        """Take up what is held, read and serve what came, and send what may leave."""
        if channel.connection.is_closed:
            return
        if channel.stream.is_broken:
            self._close(channel)
            return
        channel.connection.resume(now_ms)
        if channel.connection.wants_bytes:
            self._read(channel, now_ms)
        self._flush(channel, 0, now_ms)

    def _have_turn(self) -> None:
        self._work.set()

    def _watch(self, channel: _Channel) -> None:
        stream = channel.stream
        is_readable = stream.has_bytes or stream.has_ended
        if channel in self._ready or (is_readable and channel.connection.wants_bytes):
            self.on_work(channel)

    def _on_closed(self, channel: _Channel) -> None:
        peer = channel.connection.peer
        self._admission.on_closed(peer.listener_name, peer.peer_host)


class _Door:
    """A listener of a server, at its address."""

    def __init__(self, server: MachineServer, listener: Listener) -> None:
        self._server = server
        self._listener = listener

    def on_knock(self, stream: Stream) -> None:
        """Hand a new connection to the server's own task."""
        self._server.knock(self._listener, stream)


def server_opener(ports: Ports) -> OpenServer:
    """Return what opens one machine's server."""

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
