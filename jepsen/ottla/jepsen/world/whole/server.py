"""The world's server: drives the broker's connections over byte streams in memory.

What `broker/network/server_driver.py` does with an epoll and sockets, this does with streams: the
same `Connection` parses, takes up and answers.  A request that meets a bug of ours is not only the
end of its connection here but of the run.
"""

import heapq
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NoReturn, TypeVar

import trio

from ottla.broker.network.alarm_driver import Alarm
from ottla.broker.network.connection import Connection, ConnectionLimits, Pending
from ottla.broker.network.dispatch import Dispatcher, MalformedRequestError, Peer
from ottla.broker.network.listener import Listener
from ottla.broker.network.memory_sweep_driver import keep_memory_fair
from ottla.broker.network.paced_driver import PacedWork
from ottla.broker.network.request_memory import RequestMemory
from ottla.broker.network.response_queue import ResponseSlot
from ottla.broker.network.server_seam import OpenServer
from ottla.jepsen.world.whole.network import Host, Network
from ottla.jepsen.world.whole.streams import BACKLOG_BYTES_MAX, Ports, Stream
from ottla.model.errors import ProtocolError, only_error
from ottla.model.limits import INT32_MAX, KIB, MIB
from ottla.model.seams import Clock
from ottla.storage.disk_seam import Disk
from ottla.storage.slice import FileSlice, SliceError
from ottla.wire.codec_types import Message

READ_BYTES = 256 * KIB
"""What one turn takes from a stream."""

REQUEST_MEMORY_BYTES_MAX = 256 * MIB

OnFault = Callable[[BaseException], None]

T = TypeVar("T")


async def _at_once(work: Callable[[], T]) -> T:
    """Do what the real server does in a thread: here it takes no time."""
    return work()


class _Channel:
    """One client's stream and connection, whose host it is."""

    __slots__ = ("_server", "connection", "stream")

    def __init__(self, server: "MachineServer", stream: Stream) -> None:
        self._server = server
        self.stream = stream
        self.connection: Connection

    def on_work(self, connection: Connection) -> None:
        """Let the server serve the connection."""
        self._server.wake(self)

    def run(self, connection: Connection, slot: ResponseSlot, pending: Pending) -> None:
        """Let the server run a handler's coroutine."""
        self._server.run_pending(self, slot, pending)

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        """Let the server close the connection."""
        self._server.on_fault(self, fault)

    def give_up(self, connection: Connection, reason: str) -> None:
        """Let the server close the connection."""
        self._server.give_up(self)

    def wake_at(self, connection: Connection, deadline_ms: int) -> None:
        """Let the server serve the connection at that time."""
        self._server.wake_at(self, deadline_ms)


class MachineServer:
    """Serves the clients of one process; satisfies the seam `Server`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        disk: Disk,
        limits: ConnectionLimits,
        memory: RequestMemory,
        connection_count_max: int,
        nursery: trio.Nursery,
        on_fault: OnFault,
    ) -> None:
        self.addresses: dict[str, tuple[str, int]] = {}
        self._dispatcher = dispatcher
        self._clock = clock
        self._disk = disk
        self._limits = limits
        self._memory = memory
        self._connection_count_max = connection_count_max
        self._nursery = nursery
        self._paced = PacedWork(_at_once)
        self._on_fault = on_fault
        self._channels: dict[_Channel, None] = {}
        self._ready: dict[_Channel, None] = {}
        self._knocking: list[tuple[Listener, Stream]] = []
        self._work = trio.Event()
        self._wakes: list[tuple[int, int, _Channel]] = []
        self._wake_alarm = Alarm(clock, self._next_wake_ms, self._on_wakes_due)
        self._accepted_count = 0
        self._wake_count = 0

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return plain counts."""
        return {"network.connections": len(self._channels)}

    def bound_connections(self, count_max: int) -> None:
        """Hold this many connections from now on."""
        self._connection_count_max = count_max

    async def run(self) -> NoReturn:
        """Serve what is ready, each connection once a turn."""
        self._nursery.start_soon(self._wake_alarm.run)
        self._nursery.start_soon(keep_memory_fair, self._memory, self._clock)
        while True:
            await self._work.wait()
            self._work = trio.Event()
            now_ms = self._clock.monotonic_ms()
            knocking, self._knocking = self._knocking, []
            for listener, stream in knocking:
                self._accept(listener, stream, now_ms)
            ready, self._ready = self._ready, {}
            for channel in ready:
                if not channel.connection.is_closed:
                    self._serve(channel, now_ms)

    def close(self) -> None:
        """Hang up on everybody."""
        for channel in list(self._channels):
            self._close(channel)
        for _, stream in self._knocking:
            stream.abort()

    # ---- what channels and streams ask

    def knock(self, listener: Listener, stream: Stream) -> None:
        """Take up a new connection in the next turn."""
        self._knocking.append((listener, stream))
        self._work.set()

    def wake(self, channel: _Channel) -> None:
        """Serve a connection in the next turn."""
        self._ready[channel] = None
        self._work.set()

    def run_pending(self, channel: _Channel, slot: ResponseSlot, pending: Pending) -> None:
        """Run a handler's coroutine and hand its result to the connection."""
        self._nursery.start_soon(self._await_pending, channel, slot, pending)

    def wake_at(self, channel: _Channel, deadline_ms: int) -> None:
        """Serve a connection when that time has come."""
        heapq.heappush(self._wakes, (deadline_ms, self._next_number(), channel))
        self._wake_alarm.rearm()

    def _next_number(self) -> int:
        self._wake_count += 1
        return self._wake_count

    def give_up(self, channel: _Channel) -> None:
        """Close a connection that holds too much for too long."""
        if not channel.connection.is_closed:
            self._close(channel)

    def on_fault(self, channel: _Channel, fault: BaseException) -> None:
        """Close a connection whose request met a bug of ours, or a disk's failure."""
        if not channel.connection.is_closed:
            self._close(channel)
            if isinstance(fault, SliceError):
                self._dispatcher.on_file_error(fault.filename, fault)
            else:
                self._on_fault(fault)

    # ---- one connection's turn

    def _accept(self, listener: Listener, stream: Stream, now_ms: int) -> None:
        if len(self._channels) >= self._connection_count_max:
            stream.abort()
            return
        self._accepted_count += 1
        host, port = self.addresses[listener.name]
        peer = Peer(
            connection_id=self._accepted_count,
            listener_name=listener.name,
            peer_host=stream.peer.host_name,
            peer_port=stream.peer.port,
            local_host=host,
            local_port=port,
        )
        channel = _Channel(self, stream)
        channel.connection = Connection(
            peer,
            self._dispatcher,
            channel,
            memory=self._memory,
            limits=self._limits,
            now_ms=now_ms,
        )
        self._channels[channel] = None
        stream.on_arrival = partial(self.wake, channel)
        self.wake(channel)

    def _serve(self, channel: _Channel, now_ms: int) -> None:
        connection, stream = channel.connection, channel.stream
        if stream.is_broken:
            self._close(channel)
            return
        try:
            connection.resume(now_ms)
            if connection.wants_bytes and stream.has_bytes:
                # Writable and ours: the log patches batches where they lie.
                data = memoryview(bytearray(stream.take(READ_BYTES)))
                connection.on_bytes(data, now_ms)
                connection.has_lent_buffer = False
            if stream.has_ended and not stream.has_bytes:
                connection.on_eof()
            self._flush(channel, now_ms)
        except ProtocolError:
            self._close(channel)
            return
        except Exception as fault:
            self.on_fault(channel, fault)
            return
        if (connection.is_closing and not connection.output.byte_count) or connection.is_finished:
            self._close(channel)
        elif connection.has_more_to_take_up or (stream.has_bytes and connection.wants_bytes):
            self.wake(channel)

    def _flush(self, channel: _Channel, now_ms: int) -> None:
        connection, stream = channel.connection, channel.stream
        output = connection.output
        while output.byte_count and stream.backlog_bytes < BACKLOG_BYTES_MAX:
            pieces = output.next_bytes(_read)
            if pieces:
                data = b"".join(pieces)
            else:
                piece, sent_before = output.next_slice()
                data = piece.read()[sent_before:]
            stream.send_now(data)
            connection.on_sent(len(data), now_ms)

    def _close(self, channel: _Channel) -> None:
        self._channels.pop(channel, None)
        self._ready.pop(channel, None)
        channel.stream.on_arrival = None
        channel.stream.close_now()
        channel.connection.close()

    async def _await_pending(self, channel: _Channel, slot: ResponseSlot, pending: Pending) -> None:
        response: Message | None = None
        try:
            response = await self._paced.result_of(slot, pending)
        except* MalformedRequestError:
            self._close(channel)
        except* Exception as group:
            self.on_fault(channel, only_error(group))
        try:
            channel.connection.on_coroutine_ended(slot, response)
        except Exception as fault:
            self.on_fault(channel, fault)

    def _next_wake_ms(self) -> int | None:
        return self._wakes[0][0] if self._wakes else None

    def _on_wakes_due(self, now_ms: int) -> None:
        while self._wakes and self._wakes[0][0] <= now_ms:
            self.wake(heapq.heappop(self._wakes)[2])


class _Door:
    """A listener of a server, at its address."""

    def __init__(self, server: MachineServer, listener: Listener) -> None:
        self._server = server
        self._listener = listener

    def on_knock(self, stream: Stream) -> None:
        """Hand a new connection to the server's own task."""
        self._server.knock(self._listener, stream)


def server_opener(network: Network, ports: Ports, host: Host, on_fault: OnFault) -> OpenServer:
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
        connection_count_max: int = INT32_MAX,
        backlog: int = 50,
    ) -> AsyncIterator[MachineServer]:
        async with trio.open_nursery() as nursery:
            server = MachineServer(
                dispatcher,
                clock=clock,
                disk=disk,
                limits=limits or ConnectionLimits(),
                memory=RequestMemory(
                    request_memory_bytes_max
                    if request_memory_bytes_max >= 0
                    else REQUEST_MEMORY_BYTES_MAX
                ),
                connection_count_max=connection_count_max,
                nursery=nursery,
                on_fault=on_fault,
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


def _read(piece: FileSlice) -> bytes:
    return piece.read()
