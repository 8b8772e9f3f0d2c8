"""A client's byte stream at the world's server, plain or encrypted.

The encrypted one does over a stream what `broker/network/tls/encrypted_channel_driver` does over a
socket, with the same session of TLS.  What both promise is in
`ottla.jepsen.world.tls_conformance`.  A stream has room for every record, so that here only its
backlog holds output back.
"""

import errno
import ssl
from typing import Any

from ottla.broker.network.hosting import ConnectionHosting, HostedChannel
from ottla.broker.network.listener import HandshakeFailedError, ListenerTls
from ottla.broker.network.tls.handshakes import failure_sentence
from ottla.jepsen.world.whole.streams import BACKLOG_BYTES_MAX, Stream
from ottla.model.errors import ProtocolError
from ottla.model.limits import KIB
from ottla.model.tls.session_driver import ENDED, RECORD_BYTES, TlsFloodError, TlsSession
from ottla.storage.workbench import bytes_of

READ_BYTES = 256 * KIB
"""What one turn takes from a stream."""


class StreamChannel(HostedChannel):
    """One client's stream and connection."""

    is_shaking: bool = False
    """Whether its handshake has not ended: a plain stream has none."""

    __slots__ = ("stream",)

    def __init__(self, hosting: ConnectionHosting[Any], stream: Stream) -> None:
        super().__init__(hosting)
        self.stream = stream

    @property
    def has_more_to_write(self) -> bool:
        """Return False: only a peer that does not read holds output back."""
        return False

    def read(self, now_ms: int) -> bool:
        """Hand on what has come; return False at the end of the stream."""
        if not self.stream.has_bytes:
            return not self.stream.has_ended
        self._hand_on(bytearray(self.stream.take(self._read_bytes)), now_ms)
        return True

    @property
    def _read_bytes(self) -> int:
        """What one read takes."""
        memory = self.connection.memory
        return memory.crumb_bytes if memory.reads_crumbs else READ_BYTES

    def flush(self, now_ms: int) -> None:
        """Send what the peer has room for."""
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

    def hang_up(self) -> None:
        """Close the stream; what was sent still arrives."""
        self.stream.on_arrival = None
        self.stream.close_now()

    def _hand_on(self, data: bytearray, now_ms: int) -> None:
        """Have bytes served, writable and ours: the log patches batches where they lie."""
        self.connection.on_bytes(memoryview(data), now_ms)
        self.connection.has_lent_buffer = False

    def _send(self, data: bytes) -> None:
        self.stream.send_now(data)


class EncryptedChannel(StreamChannel):
    """One client's stream with TLS, and its connection."""

    __slots__ = ("_is_released", "_session", "is_shaking", "tls")

    def __init__(self, hosting: ConnectionHosting[Any], stream: Stream, tls: ListenerTls) -> None:
        super().__init__(hosting, stream)
        self.tls = tls
        self.is_shaking = True
        # Without a stopwatch: what a seed does must not depend on the machine's speed.
        self._session = TlsSession(tls.context, lambda: 0)
        self._is_released = False

    @property
    def has_unread(self) -> bool:
        """True if the session holds bytes of which no arrival will tell, and they are wanted."""
        return not self.is_shaking and self._session.has_unread and self.connection.wants_bytes

    def shake_hands(self) -> None:
        """Take one step; with the last one `is_shaking` ends, and the user is on the peer.

        Raises HandshakeFailedError when it has failed, OSError when the client has gone.
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
        """Decrypt what has come, up to READ_BYTES, and serve it; return False at the end."""
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
            self._hand_on(data, now_ms)
        return is_open and not session.has_ended

    def hang_up(self) -> None:
        """Say goodbye and close; what was sent still arrives."""
        if self._is_released:
            return
        if not self.is_shaking and (goodbye := self._session.say_goodbye()):
            self.stream.send_now(goodbye)
        super().hang_up()

    def release(self) -> Stream:
        """Leave the stream to the caller, who closes it."""
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
        """Send what the session says on its own: the handshake, new keys, alerts."""
        if self._session.has_output:
            self.stream.send_now(self._session.take_output())
