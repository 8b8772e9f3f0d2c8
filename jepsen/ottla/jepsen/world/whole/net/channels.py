"""A client's byte stream at the simulated server, plain or encrypted.

The encrypted channel does over a stream what `node/network/tls/encrypted_channel_driver` does over
a socket, with the same TLS session. `tests.jepsen.world.tls_conformance` tests that both behave in
the same way. A stream accepts every record, so only the backlog limit delays output.
"""

import errno
import ssl
from typing import Any

from ottla.jepsen.world.disk_waits import bytes_of
from ottla.jepsen.world.whole.net.streams import BACKLOG_BYTES_MAX, Stream
from ottla.model.errors import ProtocolError
from ottla.model.limits import KIB
from ottla.model.tls.session_driver import ENDED, RECORD_BYTES, TlsFloodError, TlsSession
from ottla.node.network.listener import HandshakeFailedError, ListenerTls
from ottla.node.network.server.hosting import ConnectionHosting, HostedChannel
from ottla.node.network.tls.handshakes import failure_sentence

READ_BYTES = 256 * KIB
"""Maximum number of bytes that the simulated server reads from a stream in one event-loop
iteration."""


class StreamChannel(HostedChannel):
    """One client's stream at the simulated server, and the broker's connection that it belongs
    to."""

    is_shaking: bool = False
    """True until the TLS handshake with the client has ended. Always False for a plain stream."""

    __slots__ = ("stream",)

    def __init__(self, hosting: ConnectionHosting[Any], stream: Stream) -> None:
        super().__init__(hosting)
        self.stream = stream

    @property
    def has_more_to_write(self) -> bool:
        """Always False, because only a peer that does not read delays output."""
        return False

    def read(self, now_ms: int) -> bool:
        """Serve the bytes that the client has sent. Returns False at the end of the stream."""
        if not self.stream.has_bytes:
            return not self.stream.has_ended
        self._pass_to_connection(bytearray(self.stream.take(self._read_bytes)), now_ms)
        return True

    @property
    def _read_bytes(self) -> int:
        """Maximum number of bytes that one read consumes from the stream."""
        memory = self.connection.memory
        return memory.chunk_bytes if memory.reads_chunks else READ_BYTES

    def flush(self, now_ms: int) -> None:
        """Send as many response bytes as the peer's backlog limit allows."""
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
            self._send(data)
            self.connection.on_sent(len(data), now_ms)

    def close_socket(self) -> None:
        """Close the client's stream. Bytes already sent are still delivered."""
        self.stream.on_arrival = None
        self.stream.close_now()

    def _pass_to_connection(self, data: bytearray, now_ms: int) -> None:
        """Pass received bytes to the broker's connection, in a writable buffer that this channel
        owns. It must be writable because the log patches batches in place."""
        self.connection.on_bytes(memoryview(data), now_ms)
        self.connection.has_lent_buffer = False

    def _send(self, data: bytes) -> None:
        self.stream.send_now(data)


class EncryptedChannel(StreamChannel):
    """One client's TLS stream at the simulated server, and the broker's connection that it belongs
    to."""

    __slots__ = ("_is_released", "_session", "is_shaking", "tls")

    def __init__(self, hosting: ConnectionHosting[Any], stream: Stream, tls: ListenerTls) -> None:
        super().__init__(hosting, stream)
        self.tls = tls
        self.is_shaking = True
        # Without a stopwatch: a run must not depend on the machine's speed.
        self._session = TlsSession(tls.context, lambda: 0)
        self._is_released = False

    @property
    def has_unread(self) -> bool:
        """True if the TLS session still has received bytes that the connection can read. No further
        arrival would announce these bytes."""
        return not self.is_shaking and self._session.has_unread and self.connection.wants_bytes

    def shake_hands(self) -> None:
        """Do one step of the TLS handshake. The last step clears `is_shaking` and sets the peer's
        user.

        Raises HandshakeFailedError if the handshake failed, OSError if the client has disconnected.
        """
        if not self.stream.has_bytes:
            if self.stream.has_ended:
                raise ConnectionResetError(errno.ECONNRESET, "gone within the handshake")
            return
        try:
            has_ended = self._session.shake_hands(memoryview(self.stream.take(READ_BYTES)))
        except ENDED:
            raise ConnectionResetError(errno.ECONNRESET, "gone within the handshake") from None
        except ssl.SSLError as error:
            said = getattr(error, "verify_message", None)
            raise HandshakeFailedError(failure_sentence(error.reason, said)) from None
        except TlsFloodError as error:
            raise HandshakeFailedError(error.where) from None
        finally:
            self._pass_on()
        if has_ended:
            self.connection.peer.user = self.tls.user_of(self._session.certificate())
            self.is_shaking = False

    def read(self, now_ms: int) -> bool:
        """Decrypt up to READ_BYTES of the received bytes, and serve them. Returns False at the end
        of the stream."""
        session, is_open = self._session, True
        room = memoryview(bytearray(self._read_bytes))
        try:
            size = session.decrypt(room) if session.has_unread else 0
            if not (session.has_unread or session.has_ended):
                if self.stream.has_bytes:
                    taken = memoryview(self.stream.take(len(room)))
                    size += session.decrypt(room[size:], taken)
                else:
                    is_open = not self.stream.has_ended
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS: {failure_sentence(error.reason, None)}") from None
        finally:
            self._pass_on()
        if size:
            data = bytearray(room[:size])
            self.stream.note("heard", data)
            self._pass_to_connection(data, now_ms)
        return is_open and not session.has_ended

    def close_socket(self) -> None:
        """Send the end of the TLS session and close the client's stream. Bytes already sent are
        still delivered."""
        if self._is_released:
            return
        if not self.is_shaking and (goodbye := self._session.take_close_notify()):
            self.stream.send_now(goodbye)
        super().close_socket()

    def release(self) -> Stream:
        """Return the client's stream without closing it. The caller closes it later."""
        self._is_released = True
        self.stream.on_arrival = None
        return self.stream

    def _send(self, data: bytes) -> None:
        self.stream.note("said", data)
        view = memoryview(data)
        try:
            for at in range(0, len(view), RECORD_BYTES):
                self.stream.send_now(self._session.encrypt(view[at : at + RECORD_BYTES]))
        except ENDED:
            raise BrokenPipeError(errno.EPIPE, "the client has gone") from None
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS: {failure_sentence(error.reason, None)}") from None

    def _pass_on(self) -> None:
        """Send the TLS session's own messages to the client: the handshake, new keys, alerts."""
        if self._session.has_output:
            self.stream.send_now(self._session.take_output())
