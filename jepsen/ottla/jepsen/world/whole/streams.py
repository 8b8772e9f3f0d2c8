"""Byte streams between the world's machines: connections as clients and followers see them.

A stream keeps the order of what is sent on it, whatever its network does.  `MachineTransport`
satisfies the seam `Transport`; the server's ends are driven by `server.py`.
"""

import errno
from collections import deque
from collections.abc import Callable
from typing import Protocol
from zlib import crc32

import trio

from ottla.jepsen.world.whole.network import Host, SimulatedNetwork

SEGMENT_BYTES_MAX = 1 << 20
"""What one message of the network carries of a stream."""

BACKLOG_BYTES_MAX = 1 << 20
"""What a client that does not read is sent before its answers wait at the server."""

IN_FLIGHT_BYTES_MAX = 4 << 20
"""What a peer that does not read lets us send before we wait: its window and our buffer."""


class Door(Protocol):
    """Whoever accepts connections at an address."""

    def on_knock(self, stream: "Stream") -> None:
        """Take up the server's end of a new connection."""
        ...


class Ports:
    """Who listens where, on all machines."""

    def __init__(self) -> None:
        self._doors: dict[tuple[str, int], Door] = {}

    def open(self, host: str, port: int, door: Door) -> None:
        """Listen; OSError when somebody does."""
        if (host, port) in self._doors:
            raise OSError(errno.EADDRINUSE, "address in use")
        self._doors[host, port] = door

    def close(self, door: Door) -> None:
        """Listen no longer."""
        for at in [at for at, known in self._doors.items() if known is door]:
            del self._doors[at]

    def close_host(self, host: str) -> None:
        """Listen no more on a machine whose process is gone."""
        for at in [at for at in self._doors if at[0] == host]:
            del self._doors[at]

    def find(self, host: str, port: int) -> Door | None:
        """Return who listens, if anybody does."""
        return self._doors.get((host, port))


class Stream:
    """One end of a connection; satisfies the seam `ByteStream`."""

    __slots__ = (
        "_buffer",
        "_host",
        "_in_flight",
        "_in_flight_bytes",
        "_is_closed",
        "_is_reset",
        "_is_sealed",
        "_network",
        "_room",
        "_waiting",
        "has_ended",
        "on_arrival",
        "peer",
        "port",
    )

    def __init__(self, network: SimulatedNetwork, host: Host, port: int) -> None:
        self.peer: Stream
        """The other end; set by `connect_ends`."""
        self.port = port
        self.on_arrival: Callable[[], None] | None = None
        """Called when bytes or the end have come: the server's way to notice."""
        self.has_ended = False
        self._network = network
        self._host = host
        self._buffer = bytearray()
        self._in_flight: deque[bytes] = deque()
        """What is on its way to our peer; empty bytes are the end."""
        self._in_flight_bytes = 0
        self._is_closed = False
        self._is_reset = False
        self._is_sealed = False
        self._waiting = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        host.endings[self._hang_up] = None

    # ---- the seam

    async def send_all(self, data: bytes | bytearray | memoryview, /) -> None:
        """Send all of it."""
        await trio.lowlevel.checkpoint()
        self._check()
        view = memoryview(data)
        for at in range(0, len(view), SEGMENT_BYTES_MAX):
            while self._in_flight_bytes > IN_FLIGHT_BYTES_MAX:
                await self._room.park()
                self._check()
            self.send_now(bytes(view[at : at + SEGMENT_BYTES_MAX]))

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Return what has come, waiting for at least one byte; empty when the peer has ended."""
        await trio.lowlevel.checkpoint()
        while not self._buffer:
            self._check()
            if self.has_ended:
                return b""
            await self._waiting.park()
        return self.take(max_bytes)

    async def receive_into(self, room: memoryview, /) -> int:
        """Do what `receive_some` does in the caller's room."""
        data = await self.receive_some(len(room))
        room[: len(data)] = data
        return len(data)

    def abort(self) -> None:
        """Close at once; the peer is told as soon as the network lets it know."""
        if not self._is_closed:
            self._is_closed = True
            self._hang_up()
            self._wake()

    async def aclose(self) -> None:
        """Close; what was sent still arrives."""
        self.close_now()
        await trio.lowlevel.checkpoint()

    # ---- what the server's side does without waiting

    @property
    def host_name(self) -> str:
        """Return whose end this is."""
        return self._host.name

    def close_now(self) -> None:
        """Close; what was sent still arrives."""
        if not self._is_closed:
            self._is_closed = True
            self._host.endings.pop(self._hang_up, None)
            if not self._is_reset:
                self._launch(b"")
            self._wake()

    def seal(self) -> None:
        """Leave what is sent either way out of the trace: it is encrypted, each time otherwise."""
        self._is_sealed = self.peer._is_sealed = True

    def note(self, what: str, plain: bytes | bytearray) -> None:
        """Put into the trace what is said on a sealed stream."""
        trace = self._network.trace
        peer = self.peer._host.name
        trace.add(_now_us(), self._host.name, what, peer, len(plain), crc32(plain))

    @property
    def backlog_bytes(self) -> int:
        """Return how much of what was sent has not been read by the peer."""
        return self._in_flight_bytes

    @property
    def has_bytes(self) -> bool:
        """Whether something can be taken."""
        return bool(self._buffer)

    @property
    def is_broken(self) -> bool:
        """Whether nothing more will come or go."""
        return self._is_reset or self._is_closed

    def take(self, max_bytes: int) -> bytes:
        """Return what has come already."""
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[: len(data)]
        self.peer._on_read(len(data))
        return data

    def send_now(self, data: bytes) -> None:
        """Send without waiting for room."""
        if self.is_broken:
            return
        if self._network.breaks():
            self._break()
            return
        self._in_flight_bytes += len(data)
        cut = self._network.cut_of(len(data))
        if not cut:
            self._launch(data)
            return
        # The rest keeps its place before what is sent later, and leaves after a while.
        self._launch(data[:cut])
        self._in_flight.append(data[cut:])
        self._network.call_at(self._network.end_of_gap(), self._launch_rest)

    # ---- between the ends

    def _launch(self, data: bytes) -> None:
        self._in_flight.append(data)
        self._network.send(self._host.name, self.peer._host.name, self._land)

    def _launch_rest(self) -> None:
        if not self._in_flight:
            return  # the connection broke meanwhile, or the rest has left with what came later
        if self._network.breaks():
            self._break()
            return
        self._network.send(self._host.name, self.peer._host.name, self._land)

    def _land(self) -> None:
        """Give our peer what was sent first and has not arrived yet."""
        if not self._in_flight:
            return  # the connection broke meanwhile
        data = self._in_flight.popleft()
        peer = self.peer
        if peer._is_closed or peer._is_reset:
            self._in_flight_bytes -= len(data)
            if data:
                self._reset()  # whoever sends to a closed end learns that it is
            return
        trace = self._network.trace
        ends = (_now_us(), self._host.name, peer._host.name, peer.port)
        if self._is_sealed:
            trace.add(*ends, "sealed" if data else "end")
        else:
            trace.add(*ends, len(data), crc32(data))
        if data:
            peer._buffer += data
        else:
            peer.has_ended = True
        peer._wake()

    def _on_read(self, size: int) -> None:
        was_above = self._in_flight_bytes >= BACKLOG_BYTES_MAX
        self._in_flight_bytes -= size
        self._room.unpark_all()
        if was_above and self.on_arrival is not None:
            self.on_arrival()

    def _hang_up(self) -> None:
        """Tell the peer that this end is gone: what it has not got is lost."""
        self._host.endings.pop(self._hang_up, None)
        self._in_flight.clear()
        self._network.send(self._host.name, self.peer._host.name, self.peer._reset)

    def _break(self) -> None:
        """Have both ends find out that the connection is gone."""
        self._in_flight.clear()
        self.peer._in_flight.clear()
        self._reset()
        self._network.send(self._host.name, self.peer._host.name, self.peer._reset)

    def _reset(self) -> None:
        if not self._is_reset:
            self._is_reset = True
            self._host.endings.pop(self._hang_up, None)
            self._in_flight.clear()
            self._in_flight_bytes = 0
            self._wake()

    def _wake(self) -> None:
        self._waiting.unpark_all()
        self._room.unpark_all()
        if self.on_arrival is not None:
            self.on_arrival()

    def _check(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("this end was closed")
        if self._is_reset and not self._buffer:
            raise trio.BrokenResourceError("the peer reset the connection")


class MachineTransport:
    """How one machine connects to others; satisfies the seam `Transport`."""

    def __init__(self, network: SimulatedNetwork, ports: Ports, host: Host) -> None:
        self._network = network
        self._ports = ports
        self._host = host
        self._next_port = 40_000

    async def connect(self, host: str, port: int) -> Stream:
        """Connect; OSError when nobody listens there, never an answer over a cut link."""
        network, ours = self._network, self._host
        theirs = network.host(host)
        self._next_port += 1
        knock = _Knock(network, self._ports, ours, theirs, port, self._next_port)
        network.send(ours.name, host, knock.arrive)
        try:
            await knock.is_answered.wait()
        except trio.Cancelled:
            knock.is_given_up = True
            if knock.stream is not None:
                knock.stream.abort()
            raise
        if knock.stream is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return knock.stream


class _Knock:
    """One attempt to connect."""

    __slots__ = (
        "_local_port",
        "_network",
        "_ours",
        "_port",
        "_ports",
        "_theirs",
        "is_answered",
        "is_given_up",
        "stream",
    )

    def __init__(
        self,
        network: SimulatedNetwork,
        ports: Ports,
        ours: Host,
        theirs: Host,
        port: int,
        local_port: int,
    ) -> None:
        self._network = network
        self._ports = ports
        self._ours = ours
        self._theirs = theirs
        self._port = port
        self._local_port = local_port
        self.stream: Stream | None = None
        self.is_answered = trio.Event()
        self.is_given_up = False

    def arrive(self) -> None:
        """Reach the other machine."""
        if self._theirs.is_silent:
            return
        door = self._ports.find(self._theirs.name, self._port)
        if door is not None and not self.is_given_up:
            ours = Stream(self._network, self._ours, self._local_port)
            theirs = Stream(self._network, self._theirs, self._port)
            ours.peer, theirs.peer = theirs, ours
            self.stream = ours
            door.on_knock(theirs)
        self._network.send(self._theirs.name, self._ours.name, self.is_answered.set)


def _now_us() -> int:
    return int(trio.current_time() * 1_000_000)
