"""One client socket and its connection (together a channel): it reads into a shared buffer, and
writes bytes and file slices.

Reads and writes do not block: an incomplete read or write continues at the next event of the
socket. Parts of file slices that are not in the page cache are loaded before sendfile by the worker
of their log directory, so that the event loop never waits for a disk.
"""

import errno
import os
import select
import socket
from collections.abc import Callable

from ottla.model.compiled import mypyc_attr
from ottla.model.errors import CorruptDataError
from ottla.model.limits import KIB, MIB
from ottla.node.network.server.hosting import ConnectionHosting, HostedChannel
from ottla.storage.disk.disk_seam import Disk, NotCachedError
from ottla.storage.disk.slice import FileSlice, SliceError

EPOLLIN, EPOLLOUT = select.EPOLLIN, select.EPOLLOUT

READ_BUFFER_BYTES = 256 * KIB
"""Size in bytes of the read buffer that all sockets of a server share. With a larger buffer, more
bytes are copied when a frame crosses the buffer's end. A smaller buffer costs more system calls for
large batches. A batch of 128 KiB should arrive in one read."""

WRITE_BYTES_PER_TURN_MAX = MIB + 16 * KIB
"""Maximum number of bytes that one connection may write per event-loop iteration. A response of 1
MiB, the default limit of clients for a partition, is sent in one iteration with its header."""

COPIED_BYTES_MAX = 128 * KIB
"""Maximum size in bytes of a response's file slice that is copied into memory and sent with the
bytes around it in one call. With a larger size, copying takes longer than the two calls that it
saves. With a smaller one, more responses need three calls, and each call may wake the client."""

READ_AHEAD_BYTES = MIB
"""Number of bytes of a file slice that are checked in one step. If they are not in the page cache,
they are loaded."""


class ReadBuffer:
    """Buffers that all sockets of a server share, one after another: for received bytes, and for
    the records of a small response."""

    __slots__ = ("records", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BUFFER_BYTES))
        self.records = memoryview(bytearray(COPIED_BYTES_MAX))

    def replace(self) -> None:
        """Allocate a new read buffer, because a request handler may still read the old one."""
        self.view = memoryview(bytearray(READ_BUFFER_BYTES))


ReadAhead = Callable[["Channel", FileSlice, int, int], None]
"""Function that loads a range of a file into the page cache, and then schedules the channel (a
socket and its connection) that sends the range."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Channel(HostedChannel):
    """Non-blocking client socket and its connection. `interest` is the set of events registered
    with epoll."""

    __slots__ = (
        "_buffer",
        "_disk",
        "_read_ahead",
        "fd",
        "interest",
        "is_blocked",
        "is_reading_ahead",
        "is_shaking",
        "sock",
    )

    def __init__(
        self,
        sock: socket.socket,
        hosting: ConnectionHosting["Channel"],
        *,
        disk: Disk,
        buffer: ReadBuffer,
        read_ahead: ReadAhead,
    ) -> None:
        super().__init__(hosting)
        self.sock = sock
        self.fd = sock.fileno()
        self.interest = EPOLLIN
        self.is_reading_ahead = False
        self.is_shaking = False
        """True while the TLS handshake of the connection is unfinished; always False for a plain
        socket."""
        self._disk = disk
        self._buffer = buffer
        self._read_ahead = read_ahead
        self.is_blocked = False
        """True if the socket accepted only a part of the output. Epoll then waits for room."""

    # Interface for the server.

    @property
    def wanted_interest(self) -> int:
        """Events of the client socket to register with epoll. Hang-ups and errors are always
        reported as well."""
        interest = EPOLLIN if self.connection.wants_bytes else 0
        return interest | EPOLLOUT if self.is_blocked else interest

    @property
    def has_more_to_write(self) -> bool:
        """True if output is left because the socket's connection has written
        WRITE_BYTES_PER_TURN_MAX in this event-loop iteration, although the socket would accept
        more."""
        return not (self.is_drained or self.is_blocked or self.is_reading_ahead)

    def close_socket(self) -> None:
        """Close the client's socket. The close of its last descriptor also removes it from
        epoll."""
        self.sock.close()

    def read(self, now_ms: int) -> bool:
        """Read once from the client's socket and serve the received bytes. Returns False at the end
        of the stream.

        Raises OSError from the socket and ProtocolError from the connection.
        """
        connection, buffer = self.connection, self._buffer
        window = connection.window() if connection.frame_bytes else None
        try:
            if window is not None:
                size = self.sock.recv_into(window)
            elif connection.memory.reads_chunks:
                size = self.sock.recv_into(buffer.view, connection.memory.chunk_bytes)
            else:
                size = self.sock.recv_into(buffer.view)
        except BlockingIOError:
            return True
        if not size:
            return False
        if window is None:
            # Without a slice of the view, which costs as much as two calls.
            connection.on_bytes(buffer.view, now_ms, size)
        else:
            connection.on_window_filled(size, now_ms)
        if connection.has_lent_buffer:
            connection.has_lent_buffer = False
            buffer.replace()
        return True

    def flush(self, now_ms: int) -> None:
        """Write the connection's output until the socket is full, the byte limit of the event-loop
        iteration is reached, or no output is left.

        Raises OSError from the socket, and CorruptDataError if a file ends within a slice.
        """
        self.is_blocked = False
        output = self.connection.output
        left_of_turn = WRITE_BYTES_PER_TURN_MAX
        while output.byte_count and left_of_turn > 0 and not self.is_reading_ahead:
            try:
                if (whole := output.only_bytes()) is not None:
                    sent = self.sock.send(whole)
                elif (framed := output.framed_slice()) is not None:
                    start, piece, end = framed
                    sent = self._send_framed(start, piece, end, left_of_turn, now_ms)
                elif pieces := output.next_bytes(self._read_if_cached):
                    sent = self._send_bytes(pieces)
                else:
                    piece, sent_before = output.next_slice()
                    sent = self._send_slice(piece, sent_before, left_of_turn, now_ms)
            except BlockingIOError:
                self.is_blocked = True
                self.connection.on_stalled()
                return
            left_of_turn -= sent
            self.connection.on_sent(sent, now_ms)

    def _send_framed(
        self, start: bytes, piece: FileSlice, end: bytes, size_max: int, now_ms: int
    ) -> int:
        """Send as much of a response with one file slice as the socket accepts. Returns the number
        of bytes sent."""
        if piece.length <= COPIED_BYTES_MAX:
            records = self._buffer.records[: piece.length]
            if _is_read(piece, records):
                return self.sock.sendmsg((start, records, end))
        sent = self.sock.send(start, socket.MSG_MORE)
        if sent < len(start):
            return sent
        try:
            records_sent = self._send_slice(piece, 0, size_max - sent, now_ms)
            sent += records_sent
            if records_sent == piece.length:
                sent += self.sock.send(end)
        except BlockingIOError:
            pass  # The next call finds the socket full, and reports that.
        return sent

    def _send_bytes(self, pieces: list[bytes | bytearray | memoryview]) -> int:
        byte_count = self.connection.output.byte_count
        if len(pieces) == 1:
            # A file slice follows, so let the kernel fill the segment.
            more = socket.MSG_MORE if len(pieces[0]) < byte_count else 0
            return self.sock.send(pieces[0], more)
        more = socket.MSG_MORE if sum(map(len, pieces)) < byte_count else 0
        return self.sock.sendmsg(pieces, (), more)

    def _read_if_cached(self, piece: FileSlice) -> bytes | bytearray | None:
        try:
            return piece.read_cached()
        except NotCachedError:
            return None

    def _send_slice(self, piece: FileSlice, sent_before: int, size_max: int, now_ms: int) -> int:
        position = piece.position + sent_before
        size = piece.cached_bytes(position, now_ms)
        if not size:
            size = min(piece.length - sent_before, READ_AHEAD_BYTES)
            if not self._disk.is_cached(piece.file, position, size):
                self._read_ahead(self, piece, position, size)
                return 0
            piece.note_cached(position + size, now_ms)
        size = min(size, size_max)
        try:
            sent = os.sendfile(self.fd, piece.fileno(), position, size)
        except OSError as error:
            if error.errno == errno.EIO:  # Sockets never report EIO; it comes from the file.
                raise SliceError(error, piece.file.path) from error
            raise
        if not sent:
            raise CorruptDataError(f"{piece.file.path} ends within {piece!r}")
        return sent


def _is_read(piece: FileSlice, room: memoryview) -> bool:
    """Read a whole file slice into the buffer `room`. Returns False if a part of the slice is not
    in the page cache, or if the file has an error. The caller then uses sendfile, which reports the
    error."""
    try:
        return os.preadv(piece.fileno(), (room,), piece.position, os.RWF_NOWAIT) == piece.length
    except OSError:
        return False
