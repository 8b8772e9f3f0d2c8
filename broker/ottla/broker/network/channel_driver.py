"""One socket and its connection: reads into a shared buffer, writes bytes and file slices.

Never waits: what would block is left for the next event of the socket.  Cold file slices are read
ahead on the directory's worker before sendfile, so that the loop never waits for a disk.
"""

import errno
import os
import select
import socket
from typing import Protocol

from ottla.broker.network.connection import Connection, Pending
from ottla.broker.network.listener import Transform
from ottla.broker.network.response_queue import ResponseSlot
from ottla.model.errors import CorruptDataError
from ottla.model.limits import KIB, MIB
from ottla.storage.disk_seam import Disk
from ottla.storage.slice import FileSlice, SliceError

READ_BUFFER_BYTES = 256 * KIB
"""What one read takes at most into the shared buffer.  Higher copies more when frames straddle its
end, lower costs more system calls for large batches: one of 128 KiB should come whole."""

CRUMB_BYTES = 16 * KIB
"""What one read takes when the pool of request memory is used up: small requests still pass, and
the beginnings of others take little more than the pool."""

WRITE_BYTES_PER_TURN_MAX = MIB
"""What one connection may write in a turn before the others get theirs."""

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


class ChannelOwner(Protocol):
    """What a channel asks of the server; see `ConnectionHost`."""

    def on_work(self, channel: "Channel") -> None:
        """Serve the channel in the next turn, which comes at once."""
        ...

    def run_pending(self, channel: "Channel", slot: ResponseSlot, pending: Pending) -> None:
        """Run a handler's coroutine and hand its result to the connection."""
        ...

    def on_fault(self, channel: "Channel", fault: BaseException) -> None:
        """Close the channel and note why."""
        ...

    def give_up(self, channel: "Channel", reason: str) -> None:
        """Close the channel and log the reason."""
        ...

    def wake_at(self, channel: "Channel", deadline_ms: int) -> None:
        """Serve the channel when that time has come."""
        ...

    def read_ahead(self, channel: "Channel", piece: FileSlice, position: int, size: int) -> None:
        """Bring a cold range into the page cache, then serve the channel."""
        ...


class Channel:
    """A non-blocking socket and its connection, whose host it is.

    `interest` is what its epoll waits for.  `connection` is set right after it was made.
    """

    __slots__ = (
        "_disk",
        "_is_blocked",
        "_owner",
        "_transform",
        "_wrapped",
        "connection",
        "fd",
        "interest",
        "is_reading_ahead",
        "sock",
    )

    def __init__(
        self,
        sock: socket.socket,
        owner: ChannelOwner,
        *,
        disk: Disk,
        transform: Transform | None,
    ) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.connection: Connection
        self._owner = owner
        self.interest = select.EPOLLIN
        self.is_reading_ahead = False
        self._disk = disk
        self._transform = transform
        # What the transform made of output, and the socket has not taken yet.
        self._wrapped = b""
        self._is_blocked = False

    # The connection's host.

    def on_work(self, connection: Connection) -> None:
        """Let the server serve the connection."""
        self._owner.on_work(self)

    def run(self, connection: Connection, slot: ResponseSlot, pending: Pending) -> None:
        """Let the server run a handler's coroutine."""
        self._owner.run_pending(self, slot, pending)

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        """Let the server close the connection."""
        self._owner.on_fault(self, fault)

    def give_up(self, connection: Connection, reason: str) -> None:
        """Let the server close the connection."""
        self._owner.give_up(self, reason)

    def wake_at(self, connection: Connection, deadline_ms: int) -> None:
        """Let the server serve the connection at that time."""
        self._owner.wake_at(self, deadline_ms)

    # What the server asks.

    @property
    def wanted_interest(self) -> int:
        """What the epoll should wait for now; hang-ups and errors it always reports."""
        interest = select.EPOLLIN if self.connection.wants_bytes else 0
        return interest | select.EPOLLOUT if self._is_blocked else interest

    @property
    def has_more_to_write(self) -> bool:
        """Whether output is left that nothing but the end of our turn holds back."""
        return not (self.is_drained or self._is_blocked or self.is_reading_ahead)

    @property
    def is_drained(self) -> bool:
        """Whether everything that could be said has been sent."""
        return not self.connection.output.byte_count and not self._wrapped

    def read(self, buffer: ReadBuffer, now_ms: int) -> bool:
        """Read once and serve what came; return False at the end of the stream.

        Raises OSError from the socket and ProtocolError from the connection.
        """
        connection = self.connection
        if self._transform is not None:
            return self._read_wrapped(self._transform, buffer, now_ms)
        window = connection.window()
        try:
            if window is not None:
                size = self.sock.recv_into(window)
            elif connection.memory.is_used_up:
                size = self.sock.recv_into(buffer.view, CRUMB_BYTES)
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
        if self._transform is not None:
            self._flush_wrapped(self._transform, now_ms)
            return
        output = self.connection.output
        left_of_turn = WRITE_BYTES_PER_TURN_MAX
        while output.byte_count and left_of_turn > 0 and not self.is_reading_ahead:
            pieces = output.next_bytes(self._read_if_cached)
            try:
                sent = self._send_bytes(pieces) if pieces else self._send_slice(left_of_turn)
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

    def _read_if_cached(self, piece: FileSlice) -> bytes | None:
        if not self._disk.is_cached(piece.file, piece.position, piece.length):
            return None
        return piece.read()

    def _send_slice(self, size_max: int) -> int:
        piece, sent_before = self.connection.output.next_slice()
        position = piece.position + sent_before
        size = min(piece.length - sent_before, size_max, READ_AHEAD_BYTES)
        if not self._disk.is_cached(piece.file, position, size):
            self._owner.read_ahead(self, piece, position, size)
            return 0
        try:
            sent = os.sendfile(self.fd, piece.fileno(), position, size)
        except OSError as error:
            if error.errno == errno.EIO:  # a socket never says so: it is the file
                raise SliceError(error, piece.file.path) from error
            raise
        if not sent:
            raise CorruptDataError(f"{piece.file.path} ends within {piece!r}")
        return sent

    # A listener with a transform: what goes either way is wrapped, file slices are read.

    def _read_wrapped(self, transform: Transform, buffer: ReadBuffer, now_ms: int) -> bool:
        try:
            size = self.sock.recv_into(buffer.view)
        except BlockingIOError:
            return True
        if not size:
            return False
        plain = transform.received(buffer.view[:size])
        if plain:
            # Writable and ours: the log patches batches where they lie.
            self.connection.on_bytes(memoryview(bytearray(plain)), now_ms)
        return True

    def _flush_wrapped(self, transform: Transform, now_ms: int) -> None:
        left_of_turn = WRITE_BYTES_PER_TURN_MAX
        while left_of_turn > 0:
            if not self._wrapped:
                self._wrapped = transform.unasked() + self._wrap_next(transform, now_ms)
            if not self._wrapped:
                return
            try:
                sent = self.sock.send(self._wrapped)
            except BlockingIOError:
                self._is_blocked = True
                return
            self._wrapped = self._wrapped[sent:]
            left_of_turn -= sent

    def _wrap_next(self, transform: Transform, now_ms: int) -> bytes:
        output = self.connection.output
        if not output.byte_count or self.is_reading_ahead:
            return b""
        pieces = output.next_bytes(self._read_if_cached)
        if pieces:
            plain = b"".join(pieces)
        else:
            piece, sent_before = output.next_slice()
            position = piece.position + sent_before
            size = min(piece.length - sent_before, READ_BUFFER_BYTES)
            if not self._disk.is_cached(piece.file, position, size):
                self._owner.read_ahead(self, piece, position, size)
                return b""
            plain = piece.file.pread(position, size)
            if len(plain) < size:
                raise CorruptDataError(f"{piece.file.path} ends within {piece!r}")
        self.connection.on_sent(len(plain), now_ms)
        return transform.sending(plain)
