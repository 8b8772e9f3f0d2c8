"""One encrypted socket and its connection: a handshake first, then records of TLS either way.

What a plain channel leaves to the kernel, OpenSSL does here, on the same epoll.  The rules that
this costs: what OpenSSL has decrypted and holds is no event of the socket, so it is asked for;
a record that the socket did not take is offered again with the same bytes, and nothing is read
before it went; reading may have to wait for room to write, and the other way round.  File slices
are read into one buffer, together with what goes before and after them, and sent from there.
"""

import errno
import os
import select
import socket
import ssl
from contextlib import suppress

from ottla.broker.network.channel_driver import (
    CRUMB_BYTES,
    READ_AHEAD_BYTES,
    WRITE_BYTES_PER_TURN_MAX,
    Channel,
    ReadAhead,
    ReadBuffer,
)
from ottla.broker.network.hosting import ConnectionHosting
from ottla.broker.network.listener import HandshakeFailedError, ListenerTls
from ottla.broker.network.tls.handshakes import failure_sentence
from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.limits import KIB
from ottla.storage.disk_seam import Disk
from ottla.storage.slice import FileSlice, SliceError

RECORD_BYTES = 16 * KIB
"""What one record of TLS holds at most, and what one call gives or takes."""

SEND_BUFFER_BYTES = 128 * KIB
"""What is gathered for sending at once.  Higher costs fewer system calls for file slices, lower
copies less again when the socket is full."""

ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""A client that has gone, in the words of OpenSSL."""


class SendBuffer:
    """The buffer that all encrypted channels of a server send from, one after another."""

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SEND_BUFFER_BYTES))


class TlsChannel(Channel):
    """A non-blocking socket with TLS, and its connection.

    Until the handshake has ended (`is_shaking`) the epoll reports one event and then waits for the
    next step, so that a crowd of handshakes is taken up at our pace.
    """

    __slots__ = (
        "_is_released",
        "_read_awaits_room",
        "_retries_read",
        "_send_buffer",
        "_shaking_interest",
        "_unsent",
        "_write_awaits_bytes",
        "tls",
    )

    def __init__(
        self,
        sock: socket.socket,
        hosting: ConnectionHosting["Channel"],
        *,
        disk: Disk,
        buffer: ReadBuffer,
        send_buffer: SendBuffer,
        read_ahead: ReadAhead,
        tls: ListenerTls,
    ) -> None:
        super().__init__(sock, hosting, disk=disk, buffer=buffer, read_ahead=read_ahead)
        self.tls = tls
        self._send_buffer = send_buffer
        self.is_shaking = True
        self._shaking_interest = select.EPOLLIN
        self.interest = self.wanted_interest
        # A record that the socket did not take: it must be offered again as it is.
        self._unsent = b""
        self._read_awaits_room = False
        self._write_awaits_bytes = False
        # The room that reading waited for is there: it is to be tried again.
        self._retries_read = False
        self._is_released = False

    # What the server asks.

    @property
    def wanted_interest(self) -> int:
        """What the epoll should wait for now."""
        if self.is_shaking:
            return self._shaking_interest | select.EPOLLONESHOT
        is_reading = self.connection.wants_bytes and not (self._read_awaits_room or self._unsent)
        interest = select.EPOLLIN if is_reading or self._write_awaits_bytes else 0
        is_full = self._is_blocked or self._read_awaits_room
        return interest | select.EPOLLOUT if is_full else interest

    @property
    def has_unread(self) -> bool:
        """Whether there are bytes, wanted by the connection, of which no event will tell."""
        if self.is_shaking or self._unsent or not self.connection.wants_bytes:
            return False
        return self._retries_read or self._stream.pending() > 0

    @property
    def has_more_to_write(self) -> bool:
        """Whether a turn is needed of which no event will tell: to write, or to read on."""
        return self.has_unread or not (
            self.is_drained or self._is_blocked or self._write_awaits_bytes or self.is_reading_ahead
        )

    @property
    def is_drained(self) -> bool:
        """Whether there is nothing to send, nor to be tried when the socket has room."""
        return not self.connection.output.byte_count and not self._read_awaits_room

    def hang_up(self) -> None:
        """Say goodbye, as far as the socket takes it at once, and close it."""
        if self._is_released:
            return
        if not self.is_shaking:
            with suppress(OSError, ValueError):
                self._stream.unwrap()
        self.sock.close()

    def release(self) -> socket.socket:
        """Leave the socket to the caller, who closes it."""
        self._is_released = True
        return self.sock

    # The handshake.

    def on_shaking_event(self) -> None:
        """Note that the epoll reports nothing further before the next step."""
        self.interest = 0

    def shake_hands(self) -> None:
        """Take one step; with the last one `is_shaking` ends, and the user is on the peer.

        Raises HandshakeFailedError when it has failed, OSError when the client has gone.
        """
        if not isinstance(self.sock, ssl.SSLSocket):
            # Only now, so that a client that says nothing costs no memory of OpenSSL.
            self.sock = self.tls.context.wrap_socket(
                self.sock, server_side=True, do_handshake_on_connect=False
            )
        try:
            self._stream.do_handshake()
        except ssl.SSLWantReadError:
            self._shaking_interest = select.EPOLLIN
            return
        except ssl.SSLWantWriteError:
            self._shaking_interest = select.EPOLLOUT
            return
        except ENDED:
            raise ConnectionResetError(errno.ECONNRESET, "gone within the handshake") from None
        except ssl.SSLError as error:
            said = getattr(error, "verify_message", None)
            raise HandshakeFailedError(failure_sentence(error.reason, said)) from None
        self.connection.peer.user = self.tls.user_of(self._stream.getpeercert(binary_form=True))
        self.is_shaking = False

    # Bytes.

    def read(self, now_ms: int) -> bool:
        """Read what is there, up to a buffer full, and serve it; return False at the end.

        Nothing is read before a record went that the socket did not take: where a client asks for
        new keys, OpenSSL answers within the read, and what it then sends is not that record.
        """
        if self._unsent:
            return True
        connection, buffer = self.connection, self._buffer
        self._retries_read = False
        window = connection.window()
        room = buffer.view if window is None else window
        if window is None and connection.memory.is_used_up:
            room = room[:CRUMB_BYTES]
        size, is_open = self._receive(room)
        if not size:
            return is_open
        if window is None:
            connection.on_bytes(buffer.view[:size], now_ms)
        else:
            connection.on_window_filled(size, now_ms)
        if connection.has_lent_buffer:
            connection.has_lent_buffer = False
            buffer.replace()
        return is_open

    def _receive(self, room: memoryview) -> tuple[int, bool]:
        """Fill room record by record; return how much came, and whether more may.

        A short record says nothing of what follows: librdkafka sends each message in its own.
        """
        stream = self._stream
        size = 0
        try:
            while size < len(room):
                count = stream.recv_into(room[size:], len(room) - size)
                size += count
                if not count:
                    return size, False
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self._read_awaits_room = True
        except ENDED:
            return size, False
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS: {failure_sentence(error.reason, None)}") from None
        return size, True

    def flush(self, now_ms: int) -> None:
        """Write until the socket is full, the turn's share is used up, or nothing is left.

        Raises OSError from the socket, CorruptDataError when a file ends within a slice.
        """
        self._is_blocked = self._write_awaits_bytes = False
        if self._read_awaits_room:
            self._read_awaits_room = False
            self._retries_read = True
        connection = self.connection
        left_of_turn = WRITE_BYTES_PER_TURN_MAX
        while connection.output.byte_count and left_of_turn > 0 and not self.is_reading_ahead:
            data = memoryview(self._unsent) if self._unsent else self._next_bytes()
            sent = 0
            while sent < len(data) and not connection.is_closed:
                count = self._send(data[sent : sent + RECORD_BYTES])
                if not count:
                    connection.on_stalled()
                    return
                sent += count
                connection.on_sent(count, now_ms)
            left_of_turn -= sent

    def _send(self, record: memoryview) -> int:
        """Send one record; return how much of it went, 0 where the socket takes none now."""
        try:
            count = self._stream.send(record)
        except ssl.SSLWantWriteError:
            self._is_blocked = True
        except ssl.SSLWantReadError:
            self._write_awaits_bytes = True
        except ENDED:
            raise BrokenPipeError(errno.EPIPE, "the client has gone") from None
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS: {failure_sentence(error.reason, None)}") from None
        else:
            self._unsent = b""
            return count
        self._unsent = bytes(record)
        return 0

    def _next_bytes(self) -> memoryview:
        """Return what goes out next, as much as the buffer holds."""
        output = self.connection.output
        if (whole := output.only_bytes()) is not None:
            return memoryview(whole)
        room = self._send_buffer.view
        return room[: output.copy_into(room, self._copy_slice)]

    def _copy_slice(self, piece: FileSlice, sent_before: int, room: memoryview) -> int:
        """Copy of a slice what is cached; have the rest read ahead, and return how much."""
        position = piece.position + sent_before
        if not self._disk.is_cached(piece.file, position, len(room)):
            ahead = min(piece.length - sent_before, READ_AHEAD_BYTES)
            self._read_ahead(self, piece, position, ahead)
            return 0
        try:
            count = os.preadv(piece.fileno(), (room,), position)
        except OSError as error:
            raise SliceError(error, piece.file.path) from error
        if not count:
            raise CorruptDataError(f"{piece.file.path} ends within {piece!r}")
        return count

    @property
    def _stream(self) -> ssl.SSLSocket:
        assert isinstance(self.sock, ssl.SSLSocket)
        return self.sock
