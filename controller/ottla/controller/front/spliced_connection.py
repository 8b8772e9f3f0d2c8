"""One connection of a node, and the connection to gRPC's own server that carries its bytes.

Pure: sockets and events are passed in. Bytes are copied unchanged, so gRPC terminates TLS. At most
the bytes of one read are buffered in each direction: a socket is not read while the other socket
accepts no bytes. If one peer ends its stream, the stream to the other peer is ended too.
"""

from typing import Protocol

from ottla.model.limits import KIB

READ_BYTES_MAX = 64 * KIB
"""Maximum number of bytes in one read from a spliced socket, which is also the buffer size of each
direction. With a smaller value, snapshots cost more system calls. With a larger one, slow peers
cause larger buffers."""

READABLE, WRITABLE = 1, 4
"""Epoll events EPOLLIN and EPOLLOUT: a socket can be read, or written."""
OUTPUT = 1
"""Constant SHUT_WR of shutdown(2), which ends the stream to the peer, and leaves the other
direction open."""


class SplicedSocket(Protocol):
    """Interface of a non-blocking stream socket."""

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read bytes from the socket into a buffer, and return their number. Raises BlockingIOError
        if no bytes are available."""
        ...

    def send(self, data: memoryview, /) -> int:
        """Write bytes to the socket, and return the number of accepted bytes. Raises
        BlockingIOError if the socket accepts no bytes."""
        ...

    def shutdown(self, how: int, /) -> None:
        """Close one direction of the socket's connection."""
        ...

    def close(self) -> None:
        """Close both directions of the socket's connection."""
        ...


class Direction:
    """One direction of a spliced connection. It copies bytes from one socket (the source) to the
    connection's other socket (the sink)."""

    __slots__ = ("has_ended", "is_unwatched", "left", "sink", "source")

    def __init__(self, source: SplicedSocket, sink: SplicedSocket) -> None:
        self.source = source
        self.sink = sink
        self.left = memoryview(b"")
        """Bytes that were read from the source socket and that the sink socket has not accepted
        yet."""
        self.has_ended = False
        """True if the end of the source socket's stream was read."""
        self.is_unwatched = False
        """True if the source socket's peer has closed the connection, but bytes remain to be read.
        The epoll events of the socket would repeat without end, so the source is read only when the
        sink socket accepts bytes."""

    @property
    def wants_bytes(self) -> bool:
        """True if the source socket may be read."""
        return not self.left and not self.has_ended

    @property
    def wants_room(self) -> bool:
        """True if the sink socket must accept buffered bytes before the source socket is read
        again."""
        return bool(self.left) or (self.is_unwatched and not self.has_ended)

    def pull(self, buffer: memoryview) -> None:
        """Read from the source socket once, and write as many of the bytes as the sink socket
        accepts.

        Raises OSError if a socket is broken.
        """
        if not self.wants_bytes:
            return
        try:
            count = self.source.recv_into(buffer)
        except BlockingIOError:
            return
        if not count:
            self.has_ended = True
            self.sink.shutdown(OUTPUT)
            return
        sent = self._sent(buffer[:count])
        if sent < count:
            self.left = memoryview(bytes(buffer[sent:count]))

    def push(self, buffer: memoryview) -> None:
        """Write the buffered bytes that the sink socket has not accepted yet. Raises OSError if a
        socket is broken."""
        if self.left:
            self.left = self.left[self._sent(self.left) :]
        if self.is_unwatched:
            self.pull(buffer)

    def _sent(self, data: memoryview) -> int:
        try:
            return self.sink.send(data)
        except BlockingIOError:
            return 0


class SplicedConnection:
    """Connection of a node to gRPC's server: two sockets whose bytes are copied in both
    directions."""

    __slots__ = ("host", "inbound", "inner", "outbound", "outer", "token")

    def __init__(
        self, outer: SplicedSocket, inner: SplicedSocket, *, host: str, token: str
    ) -> None:
        """Create a spliced connection from two sockets. `outer` leads to the node, `inner` to
        gRPC's server."""
        self.outer = outer
        self.inner = inner
        self.host = host
        """Address of the node at the other end of the connection."""
        self.token = token
        """Name by which gRPC's server knows the connection."""
        self.inbound = Direction(outer, inner)
        self.outbound = Direction(inner, outer)

    @property
    def is_over(self) -> bool:
        """True if both directions of the spliced connection have ended."""
        return self.inbound.has_ended and self.outbound.has_ended

    @property
    def is_ending(self) -> bool:
        """True if at least one direction of the spliced connection has ended."""
        return self.inbound.has_ended or self.outbound.has_ended

    def interest(self, stream: SplicedSocket) -> int | None:
        """Return the epoll events to watch on one of the two sockets, or None if the socket need
        not be watched."""
        incoming, outgoing = self._directions(stream)
        if incoming.is_unwatched:
            return None
        return (READABLE if incoming.wants_bytes else 0) | (WRITABLE if outgoing.wants_room else 0)

    def on_event(self, stream: SplicedSocket, mask: int, buffer: memoryview) -> bool:
        """Copy bytes after an event of a socket. Returns False if the caller must close the
        connection. Raises OSError if a socket is broken."""
        incoming, outgoing = self._directions(stream)
        if mask & WRITABLE:
            outgoing.push(buffer)
        if mask & READABLE:
            incoming.pull(buffer)
        elif mask & ~WRITABLE:
            # Closed in both directions, or broken.
            if incoming.has_ended or not incoming.left:
                return False
            incoming.is_unwatched = True
        return not self.is_over

    def _directions(self, stream: SplicedSocket) -> tuple[Direction, Direction]:
        """Return the direction that reads from a socket, and the direction that writes to that
        socket."""
        if stream is self.outer:
            return self.inbound, self.outbound
        return self.outbound, self.inbound
