"""Byte streams between simulated machines: connections of clients and followers.

A stream preserves the order of its bytes under any network fault. `MachineTransport` implements the
protocol `Transport`. The server's ends of the streams are driven by `server.py`.
"""

import errno
from collections import deque
from collections.abc import Callable
from typing import Protocol
from zlib import crc32

import trio

from ottla.jepsen.world.whole.net.network import Host, SimulatedNetwork

SEGMENT_BYTES_MAX = 1 << 20
"""Maximum number of bytes of a stream in one network message."""

BACKLOG_BYTES_MAX = 1 << 20
"""Number of unread bytes sent to a client above which responses wait at the server."""

IN_FLIGHT_BYTES_MAX = 4 << 20
"""Maximum number of bytes in flight to a peer that does not read them. It corresponds to the peer's
window and the sender's buffer together."""


class Acceptor(Protocol):
    """Interface of a listener, which accepts the connections to one address."""

    def on_connect(self, stream: "Stream") -> None:
        """Accept a new connection. `stream` is the server's end of it."""
        ...


class Ports:
    """The acceptors (listeners) of all simulated machines, by address."""

    def __init__(self) -> None:
        self._acceptors: dict[tuple[str, int], Acceptor] = {}
        self.on_connection: Callable[[Stream, Stream], None] | None = None
        """Function called with the client's and the server's end of each new connection. None if no
        test observes the connections."""

    def open(self, host: str, port: int, acceptor: Acceptor) -> None:
        """Register `acceptor` as the listener at an address. Raises OSError if the address is in
        use."""
        if (host, port) in self._acceptors:
            raise OSError(errno.EADDRINUSE, "address in use")
        self._acceptors[host, port] = acceptor

    def close(self, acceptor: Acceptor) -> None:
        """Stop listening at the addresses of `acceptor`."""
        for at in [at for at, known in self._acceptors.items() if known is acceptor]:
            del self._acceptors[at]

    def close_host(self, host: str) -> None:
        """Close all ports of a machine whose process has ended."""
        for at in [at for at in self._acceptors if at[0] == host]:
            del self._acceptors[at]

    def find(self, host: str, port: int) -> Acceptor | None:
        """Return the acceptor that listens at an address, or None if no acceptor does."""
        return self._acceptors.get((host, port))


class Stream:
    """One end of a simulated connection. Implements the protocol `ByteStream`."""

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
        "on_landing",
        "peer",
        "port",
    )

    def __init__(self, network: SimulatedNetwork, host: Host, port: int) -> None:
        self.peer: Stream
        """The other end of the connection. Set by `connect_ends`."""
        self.port = port
        self.on_arrival: Callable[[], None] | None = None
        """Function called when bytes or the end of the stream have been received, to notify the
        server. None if no server uses this end."""
        self.on_landing: Callable[[bytes], bool] | None = None
        """Function called with bytes before this end receives them. If it returns True, they are
        lost and the connection breaks. None if no test observes this end."""
        self.has_ended = False
        self._network = network
        self._host = host
        self._buffer = bytearray()
        self._in_flight: deque[bytes] = deque()
        """Blocks of bytes in flight to the peer, oldest first. An empty block marks the end of the
        stream."""
        self._in_flight_bytes = 0
        self._is_closed = False
        self._is_reset = False
        self._is_sealed = False
        self._waiting = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        host.endings[self._hang_up] = None

    # ---- the seam

    async def send_all(self, data: bytes | bytearray | memoryview, /) -> None:
        """Send all data to the peer, waiting while too many bytes are in flight."""
        await trio.lowlevel.checkpoint()
        self._check()
        view = memoryview(data)
        for at in range(0, len(view), SEGMENT_BYTES_MAX):
            while self._in_flight_bytes > IN_FLIGHT_BYTES_MAX:
                await self._room.park()
                self._check()
            self.send_now(bytes(view[at : at + SEGMENT_BYTES_MAX]))

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Return received bytes, waiting until there is at least one. Returns b"" at the end of the
        stream."""
        await trio.lowlevel.checkpoint()
        while not self._buffer:
            self._check()
            if self.has_ended:
                return b""
            await self._waiting.park()
        return self.take(max_bytes)

    async def receive_into(self, room: memoryview, /) -> int:
        """Receive like `receive_some`, but into the caller's buffer. Returns the number of received
        bytes."""
        data = await self.receive_some(len(room))
        room[: len(data)] = data
        return len(data)

    def abort(self) -> None:
        """Close the connection immediately. Bytes that the peer has not received are lost. The peer
        is notified as soon as the network allows."""
        if not self._is_closed:
            self._is_closed = True
            self._hang_up()
            self._wake()

    async def aclose(self) -> None:
        """Close the stream. Bytes already sent are still delivered."""
        self.close_now()
        await trio.lowlevel.checkpoint()

    # ---- calls of the server that do not wait

    @property
    def host_name(self) -> str:
        """Host name of this end of the connection."""
        return self._host.name

    def close_now(self) -> None:
        """Close the stream without waiting. Bytes already sent are still delivered."""
        if not self._is_closed:
            self._is_closed = True
            self._host.endings.pop(self._hang_up, None)
            if not self._is_reset:
                self._launch(b"")
            self._wake()

    def seal(self) -> None:
        """Leave this stream's bytes out of the trace, because encrypted bytes differ in each
        run."""
        self._is_sealed = self.peer._is_sealed = True

    def note(self, what: str, plain: bytes | bytearray) -> None:
        """Add plain text of an encrypted stream to the trace (hash of events) of the run. `what`
        names the kind of event."""
        trace = self._network.trace
        peer = self.peer._host.name
        trace.add(_now_us(), self._host.name, what, peer, len(plain), crc32(plain))

    @property
    def backlog_bytes(self) -> int:
        """Number of bytes sent from this end that the peer has not read yet."""
        return self._in_flight_bytes

    @property
    def has_bytes(self) -> bool:
        """True if received bytes of the stream are waiting to be read."""
        return bool(self._buffer)

    @property
    def is_broken(self) -> bool:
        """True if the stream was reset or closed."""
        return self._is_reset or self._is_closed

    def take(self, max_bytes: int) -> bytes:
        """Return up to `max_bytes` bytes of the stream that have already been received."""
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[: len(data)]
        self.peer._on_read(len(data))
        return data

    def send_now(self, data: bytes) -> None:
        """Send bytes at once, even if the peer has not read earlier bytes."""
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
        # The rest keeps its place before later data, and is sent after a while.
        self._launch(data[:cut])
        self._in_flight.append(data[cut:])
        self._network.call_at(self._network.end_of_gap(), self._launch_rest)

    # ---- between the ends

    def _launch(self, data: bytes) -> None:
        self._in_flight.append(data)
        self._network.send(self._host.name, self.peer._host.name, self._land)

    def _launch_rest(self) -> None:
        if not self._in_flight:
            return  # the connection broke meanwhile, or the rest was sent with later data
        if self._network.breaks():
            self._break()
            return
        self._network.send(self._host.name, self.peer._host.name, self._land)

    def _land(self) -> None:
        """Deliver the oldest bytes in flight to the peer."""
        if not self._in_flight:
            return  # the connection broke meanwhile
        data = self._in_flight.popleft()
        peer = self.peer
        if peer._is_closed or peer._is_reset:
            self._in_flight_bytes -= len(data)
            if data:
                self._reset()  # the sender learns that this end is closed
            return
        if data and peer.on_landing is not None and peer.on_landing(data):
            self._break()
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
        """Reset the connection at the peer: bytes that it has not received are lost."""
        self._host.endings.pop(self._hang_up, None)
        self._in_flight.clear()
        self._network.send(self._host.name, self.peer._host.name, self.peer._reset)

    def _break(self) -> None:
        """Break the connection: both ends are reset, and the bytes in flight are lost."""
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
    """Transport (opener of connections) of one simulated machine. Implements the protocol
    `Transport`."""

    def __init__(self, network: SimulatedNetwork, ports: Ports, host: Host) -> None:
        self._network = network
        self._ports = ports
        self._host = host
        self._next_port = 40_000

    async def connect(self, host: str, port: int) -> Stream:
        """Connect to an address, and return this end of the connection. Raises OSError if no
        process listens there. Over a cut link the call waits without a response."""
        network, ours = self._network, self._host
        theirs = network.host(host)
        self._next_port += 1
        attempt = _ConnectAttempt(network, self._ports, ours, theirs, port, self._next_port)
        network.send(ours.name, host, attempt.arrive)
        try:
            await attempt.is_answered.wait()
        except trio.Cancelled:
            attempt.is_given_up = True
            if attempt.stream is not None:
                attempt.stream.abort()
            raise
        if attempt.stream is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return attempt.stream


class _ConnectAttempt:
    """One attempt of a machine to connect to an address of another machine."""

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
        """Deliver the connection attempt to the other machine, which accepts or refuses it. A
        machine without power does not respond."""
        if self._theirs.is_silent:
            return
        acceptor = self._ports.find(self._theirs.name, self._port)
        if acceptor is not None and not self.is_given_up:
            ours = Stream(self._network, self._ours, self._local_port)
            theirs = Stream(self._network, self._theirs, self._port)
            ours.peer, theirs.peer = theirs, ours
            self.stream = ours
            if self._ports.on_connection is not None:
                self._ports.on_connection(ours, theirs)
            acceptor.on_connect(theirs)
        self._network.send(self._theirs.name, self._ours.name, self.is_answered.set)


def _now_us() -> int:
    return int(trio.current_time() * 1_000_000)
