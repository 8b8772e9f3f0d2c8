"""One encrypted socket and its connection: a handshake first, then TLS records in both directions.

The socket transports ciphertext, which `model/tls/session_driver` encrypts and decrypts in memory,
with bounded records and time. Bytes that the TLS session has already received cause no socket
event, so the server checks for such bytes (`has_unread`). The channel reads only after all earlier
records have been sent. File slices are read into one buffer, together with the output before and
after them, and sent from there.
"""

import errno
import os
import select
import socket
import ssl
import time
from contextlib import suppress

from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.limits import KIB
from ottla.model.tls.session_driver import ENDED, RECORD_BYTES, TlsFloodError, TlsSession
from ottla.node.network.listener import HandshakeFailedError, ListenerTls
from ottla.node.network.server.channel_driver import (
    READ_AHEAD_BYTES,
    WRITE_BYTES_PER_TURN_MAX,
    Channel,
    ReadAhead,
    ReadBuffer,
)
from ottla.node.network.server.hosting import ConnectionHosting
from ottla.node.network.tls.handshakes import failure_sentence
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.slice import FileSlice, SliceError

CIPHERTEXT_BYTES = 64 * KIB
"""Number of ciphertext bytes read from a socket per system call. A larger number needs fewer calls;
a smaller one takes less memory for a connection with small records."""

SHAKING_BYTES = 4 * KIB
"""Maximum ciphertext bytes read from the socket by one step of a TLS handshake. Further bytes wait
in the kernel."""

SEND_BUFFER_BYTES = 64 * KIB
"""Number of plaintext bytes that are encrypted per system call. A larger number needs fewer calls
for file slices; a smaller one takes less memory for clients that do not read."""


class SharedBuffers:
    """Buffers for ciphertext and plaintext that all TLS connections of a server share, one after
    another."""

    __slots__ = ("ciphertext", "plaintext")

    def __init__(self) -> None:
        self.ciphertext = memoryview(bytearray(CIPHERTEXT_BYTES))
        """Buffer for the ciphertext received from a socket."""
        self.plaintext = memoryview(bytearray(SEND_BUFFER_BYTES))
        """Buffer for received plaintext, or for plaintext to be encrypted and sent."""


class TlsChannel(Channel):
    """Non-blocking socket with TLS, and its connection.

    During the handshake (`is_shaking`), epoll reports one event, and the next event only after the
    next step of the handshake. The server can therefore limit the rate of concurrent handshakes.
    """

    __slots__ = (
        "_is_released",
        "_session",
        "_shaking_interest",
        "_shared",
        "_unsent",
        "_unsent_plain_bytes",
        "tls",
    )

    def __init__(
        self,
        sock: socket.socket,
        hosting: ConnectionHosting["Channel"],
        *,
        disk: Disk,
        buffer: ReadBuffer,
        shared: SharedBuffers,
        read_ahead: ReadAhead,
        tls: ListenerTls,
    ) -> None:
        super().__init__(sock, hosting, disk=disk, buffer=buffer, read_ahead=read_ahead)
        self.tls = tls
        self._shared = shared
        self.is_shaking = True
        self._shaking_interest = select.EPOLLIN
        self.interest = self.wanted_interest
        # Created at the client's first bytes, so that a silent client takes no memory of OpenSSL.
        self._session: TlsSession | None = None
        # Records that the socket did not accept, and the number of output bytes in them.
        self._unsent = memoryview(b"")
        self._unsent_plain_bytes = 0
        self._is_released = False

    # Interface for the server.

    @property
    def wanted_interest(self) -> int:
        """Events to register with epoll for the socket of this channel."""
        if self.is_shaking:
            return self._shaking_interest | select.EPOLLONESHOT
        is_reading = self.connection.wants_bytes and not self._unsent
        interest = select.EPOLLIN if is_reading else 0
        return interest | select.EPOLLOUT if self.is_blocked else interest

    @property
    def has_unread(self) -> bool:
        """True if the TLS session has already received bytes that the connection can read now. No
        further socket event would announce these bytes."""
        if self.is_shaking or self._unsent or not self.connection.wants_bytes:
            return False
        return self._open_session.has_unread

    @property
    def has_more_to_write(self) -> bool:
        """True if the channel must be served in the next event-loop iteration although no socket
        event will occur, because output or received bytes are left."""
        return self.has_unread or not (self.is_drained or self.is_blocked or self.is_reading_ahead)

    @property
    def is_drained(self) -> bool:
        """True if all output of the connection was encrypted and sent."""
        return not (self.connection.output.byte_count or self._unsent)

    def close_socket(self) -> None:
        """Send a TLS close_notify, if the socket accepts it at once, and close the socket."""
        if self._is_released:
            return
        if not self.is_shaking:
            with suppress(OSError):
                self.sock.send(bytes(self._unsent) + self._open_session.take_close_notify())
        self.sock.close()

    def release(self) -> socket.socket:
        """Detach and return the socket of the TLS connection. The caller must close the socket."""
        self._is_released = True
        return self.sock

    # Handshake.

    def on_shaking_event(self) -> None:
        """Record that epoll has reported an event of a handshaking socket. Epoll reports no further
        event before the next step of the handshake."""
        self.interest = 0

    def shake_hands(self) -> None:
        """Run one step of the TLS handshake. The last step sets `is_shaking` to False, and sets the
        user of the peer.

        Raises HandshakeFailedError if the handshake fails, and OSError if the client has
        disconnected.
        """
        self._send_unsent()
        if self._unsent:
            self._shaking_interest = select.EPOLLOUT
            return
        self._shaking_interest = select.EPOLLIN
        ciphertext = self._shared.ciphertext[:SHAKING_BYTES]
        try:
            size = self.sock.recv_into(ciphertext)
        except BlockingIOError:
            return
        if not size:
            raise ConnectionResetError(errno.ECONNRESET, "gone within the handshake")
        if self._session is None:
            self._session = TlsSession(self.tls.context, time.perf_counter_ns)
        session = self._session
        try:
            has_ended = session.shake_hands(ciphertext[:size])
        except ENDED:
            raise ConnectionResetError(errno.ECONNRESET, "gone within the handshake") from None
        except ssl.SSLError as error:
            said = getattr(error, "verify_message", None)
            raise HandshakeFailedError(failure_sentence(error.reason, said)) from None
        except TlsFloodError as error:
            raise HandshakeFailedError(error.where) from None
        finally:
            self._pass_on(session)
        if has_ended:
            self.connection.peer.user = self.tls.user_of(session.certificate())
            self.is_shaking = False
        elif self._unsent:
            self._shaking_interest = select.EPOLLOUT

    # Reading and writing.

    def read(self, now_ms: int) -> bool:
        """Read up to one buffer of plaintext from the TLS session and serve it. Returns False at
        the end of the stream.

        The channel reads only after earlier records have been sent. Otherwise, the responses to a
        client that repeatedly requests new keys, and reads nothing, would fill the broker's memory.
        """
        if self._unsent:
            return True
        connection, buffer = self.connection, self._buffer
        window = connection.window()
        room = buffer.view if window is None else window
        ciphertext = self._shared.ciphertext
        if connection.memory.reads_chunks:
            chunk_bytes = connection.memory.chunk_bytes
            room, ciphertext = room[:chunk_bytes], ciphertext[:chunk_bytes]
        size, is_open = self._receive(room, ciphertext)
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

    def _receive(self, room: memoryview, ciphertext: memoryview) -> tuple[int, bool]:
        """Decrypt received bytes into the buffer `room`. `ciphertext` is the buffer for reads from
        the socket. Returns the number of plaintext bytes, and whether more may be available.

        Plaintext that the TLS session already holds is returned first. If the session has reached
        its output limit, the socket is not read.
        """
        session = self._open_session
        try:
            size = session.decrypt(room) if session.has_unread else 0
            while size < len(room) and not (session.has_unread or session.has_ended):
                try:
                    count = self.sock.recv_into(ciphertext)
                except BlockingIOError:
                    break
                if not count:
                    return size, False
                size += session.decrypt(room[size:], ciphertext[:count])
                if count < len(ciphertext):
                    break
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS: {failure_sentence(error.reason, None)}") from None
        finally:
            self._pass_on(session)
        return size, not session.has_ended

    def _pass_on(self, session: TlsSession) -> None:
        """Send the records that the TLS session itself has produced: handshake messages, key
        updates, alerts."""
        if session.has_output:
            self._unsent = memoryview(bytes(self._unsent) + session.take_output())
            self._send_unsent()

    def _send_unsent(self) -> None:
        """Send as many of the unsent TLS records as the socket accepts."""
        while self._unsent and not self._is_released:
            try:
                self._unsent = self._unsent[self.sock.send(self._unsent) :]
            except BlockingIOError:
                self.is_blocked = True
                return

    def flush(self, now_ms: int) -> None:
        """Encrypt and write output until the socket is full, the byte limit of the event-loop
        iteration is reached, or no output is left.

        Raises OSError from the socket, and CorruptDataError if a file ends within a slice.
        """
        self.is_blocked = False
        connection = self.connection
        left_of_turn = WRITE_BYTES_PER_TURN_MAX
        while not connection.is_closed:
            self._send_unsent()
            if self._unsent:
                connection.on_stalled()
                return
            if sent := self._unsent_plain_bytes:
                self._unsent_plain_bytes = 0
                left_of_turn -= sent
                connection.on_sent(sent, now_ms)
            if not connection.output.byte_count or left_of_turn <= 0 or self.is_reading_ahead:
                return
            self._encrypt(self._next_bytes()[:SEND_BUFFER_BYTES])

    def _encrypt(self, data: memoryview) -> None:
        """Encrypt output into TLS records, and send as many of the records' bytes as one system
        call accepts.

        The output counts as sent when its last record has been sent.
        """
        encrypt = self._open_session.encrypt
        records = []
        try:
            for at in range(0, len(data), RECORD_BYTES):
                records.append(encrypt(data[at : at + RECORD_BYTES]))
        except ENDED:
            raise BrokenPipeError(errno.EPIPE, "the client has gone") from None
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS: {failure_sentence(error.reason, None)}") from None
        self._unsent_plain_bytes = len(data)
        if len(records) == 1:
            self._unsent = memoryview(records[0])
            return
        try:
            sent = self.sock.sendmsg(records)
        except BlockingIOError:
            sent = 0
        if sent < sum(map(len, records)):
            self._unsent = memoryview(b"".join(records))[sent:]

    def _next_bytes(self) -> memoryview:
        """Return the plaintext output to send next, at most as much as fits into the buffer."""
        output = self.connection.output
        if (whole := output.only_bytes()) is not None:
            return memoryview(whole)
        room = self._shared.plaintext
        return room[: output.copy_into(room, self._copy_slice)]

    def _copy_slice(self, piece: FileSlice, sent_before: int, room: memoryview) -> int:
        """Copy the next bytes of a file slice into the buffer `room`, and return the number of
        copied bytes. If the bytes are not in the page cache, start loading them and return 0."""
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
    def _open_session(self) -> TlsSession:
        assert self._session is not None
        return self._session
