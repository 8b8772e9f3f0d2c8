"""One socket and its connection: reads into a shared buffer, writes bytes and file slices.

Never waits: what would block is left for the next event of the socket.  Cold file slices are read
ahead on the directory's worker before sendfile, so that the loop never waits for a disk.
"""

import errno
import os
import select
import socket
from collections.abc import Callable

from ottla.broker.network.hosting import ConnectionHosting, HostedChannel
from ottla.model.compiled import mypyc_attr
from ottla.model.errors import CorruptDataError
from ottla.model.limits import KIB, MIB
from ottla.storage.disk_seam import Disk, NotCachedError
from ottla.storage.slice import FileSlice, SliceError

EPOLLIN, EPOLLOUT = select.EPOLLIN, select.EPOLLOUT

READ_BUFFER_BYTES = 256 * KIB
"""What one read takes at most into the shared buffer.  Higher copies more when frames straddle its
end, lower costs more system calls for large batches: one of 128 KiB should come whole."""

WRITE_BYTES_PER_TURN_MAX = MIB + 16 * KIB
"""What one connection may write in a turn before the others get theirs.  An answer of 1 MiB, which
clients ask of a partition by default, leaves in one with what stands around it."""

READ_AHEAD_BYTES = MIB
"""How much of a file slice is checked for being cached, and read ahead, at once."""


class ReadBuffer:
    """The buffer all sockets of a server are read into, one after another."""

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BUFFER_BYTES))

    def replace(self) -> None:
        """Leave the buffer to whoever still reads in it."""
        self.view = memoryview(bytearray(READ_BUFFER_BYTES))


ReadAhead = Callable[["Channel", FileSlice, int, int], None]
"""Brings a cold range of a file into the page cache, then has the channel served."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Channel(HostedChannel):
    """A non-blocking socket and its connection; `interest` is what its epoll waits for."""

    __slots__ = (
        "_buffer",
        "_disk",
        "_is_blocked",
        "_read_ahead",
        "fd",
        "interest",
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
        """Whether its handshake has not ended: a plain socket has none."""
        self._disk = disk
        self._buffer = buffer
        self._read_ahead = read_ahead
        self._is_blocked = False

    # What the server asks.

    @property
    def wanted_interest(self) -> int:
        """What the epoll should wait for now; hang-ups and errors it always reports."""
        interest = EPOLLIN if self.connection.wants_bytes else 0
        return interest | EPOLLOUT if self._is_blocked else interest

    @property
    def is_calm(self) -> bool:
        """Whether all is done and sent, and the epoll waits for bytes: no more is to be asked."""
        return self.connection.is_calm and self.interest == EPOLLIN and not self._is_blocked

    @property
    def has_more_to_write(self) -> bool:
        """Whether output is left that nothing but the end of our turn holds back."""
        return not (self.is_drained or self._is_blocked or self.is_reading_ahead)

    def hang_up(self) -> None:
        """Close the socket, which takes its last descriptor out of the epoll."""
        self.sock.close()

    def read(self, now_ms: int) -> bool:
        """Read once and serve what came; return False at the end of the stream.

        Raises OSError from the socket and ProtocolError from the connection.
        """
        connection, buffer = self.connection, self._buffer
        window = connection.window()
        try:
            if window is not None:
                size = self.sock.recv_into(window)
            elif connection.memory.reads_crumbs:
                size = self.sock.recv_into(buffer.view, connection.memory.crumb_bytes)
            else:
                size = self.sock.recv_into(buffer.view)
        except BlockingIOError:
            return True
        if not size:
            return False
        if window is None:
            connection.on_bytes(buffer.view[:size], now_ms)
        else:
            connection.on_window_filled(size, now_ms)
        if connection.has_lent_buffer:
            connection.has_lent_buffer = False
            buffer.replace()
        return True

    def flush(self, now_ms: int) -> None:
        """Write until the socket is full, the turn's share is used up, or nothing is left.

        Raises OSError from the socket, CorruptDataError when a file ends within a slice.
        """
        self._is_blocked = False
        output = self.connection.output
        left_of_turn = WRITE_BYTES_PER_TURN_MAX
        while output.byte_count and left_of_turn > 0 and not self.is_reading_ahead:
            try:
                if (whole := output.only_bytes()) is not None:
                    sent = self.sock.send(whole)
                elif pieces := output.next_bytes(self._read_if_cached):
                    sent = self._send_bytes(pieces)
                else:
                    sent = self._send_slice(left_of_turn, now_ms)
            except BlockingIOError:
                self._is_blocked = True
                self.connection.on_stalled()
                return
            left_of_turn -= sent
            self.connection.on_sent(sent, now_ms)

    def _send_bytes(self, pieces: list[bytes | bytearray | memoryview]) -> int:
        byte_count = self.connection.output.byte_count
        if len(pieces) == 1:
            # More to come (a file slice): let the kernel fill the segment.
            more = socket.MSG_MORE if len(pieces[0]) < byte_count else 0
            return self.sock.send(pieces[0], more)
        more = socket.MSG_MORE if sum(map(len, pieces)) < byte_count else 0
        return self.sock.sendmsg(pieces, (), more)

    def _read_if_cached(self, piece: FileSlice) -> bytes | bytearray | None:
        try:
            return piece.read_cached()
        except NotCachedError:
            return None

    def _send_slice(self, size_max: int, now_ms: int) -> int:
        piece, sent_before = self.connection.output.next_slice()
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
            if error.errno == errno.EIO:  # a socket never says so: it is the file
                raise SliceError(error, piece.file.path) from error
            raise
        if not sent:
            raise CorruptDataError(f"{piece.file.path} ends within {piece!r}")
        return sent
