"""A client's byte stream at the world's server, plain or encrypted.

The encrypted one does over two buffers of OpenSSL what
`broker/network/tls/encrypted_channel_driver` does over a socket.  What both promise is in
`ottla.jepsen.world.tls_conformance`.  A buffer has room for every record, so that here only the
stream's backlog holds output back.
"""

import errno
import ssl
from contextlib import suppress
from typing import Any

from ottla.broker.network.hosting import ConnectionHosting, HostedChannel
from ottla.broker.network.listener import HandshakeFailedError, ListenerTls
from ottla.broker.network.tls.handshakes import failure_sentence
from ottla.jepsen.world.whole.streams import BACKLOG_BYTES_MAX, Stream
from ottla.model.errors import ProtocolError
from ottla.model.limits import KIB
from ottla.storage.workbench import bytes_of

READ_BYTES = 256 * KIB
"""What one turn takes from a stream."""

SEND_BYTES = 128 * KIB
"""What is encrypted before it is sent."""

ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""A client that has gone, in the words of OpenSSL."""


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
        self._hand_on(bytearray(self.stream.take(READ_BYTES)), now_ms)
        return True

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

    __slots__ = ("_incoming", "_is_dry", "_is_released", "_outgoing", "_tls", "is_shaking", "tls")

    def __init__(self, hosting: ConnectionHosting[Any], stream: Stream, tls: ListenerTls) -> None:
        super().__init__(hosting, stream)
        self.tls = tls
        self.is_shaking = True
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject = tls.context.wrap_bio(
            self._incoming, self._outgoing, server_side=True
        )
        # Whether OpenSSL holds nothing that it could decrypt now.
        self._is_dry = True
        self._is_released = False

    @property
    def has_unread(self) -> bool:
        """Whether OpenSSL holds bytes, wanted by the connection, of which no arrival will tell."""
        return not self.is_shaking and not self._is_dry and self.connection.wants_bytes

    def shake_hands(self) -> None:
        """Take one step; with the last one `is_shaking` ends, and the user is on the peer.

        Raises HandshakeFailedError when it has failed, OSError when the client has gone.
        """
        self._take_in()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ENDED:
            raise ConnectionResetError(errno.ECONNRESET, "gone within the handshake") from None
        except ssl.SSLError as error:
            said = getattr(error, "verify_message", None)
            raise HandshakeFailedError(failure_sentence(error.reason, said)) from None
        finally:
            self._pass_on()
        self.connection.peer.user = self.tls.user_of(self._tls.getpeercert(binary_form=True))
        self.is_shaking = False
        self._is_dry = False  # a request may have come together with the client's last words

    def read(self, now_ms: int) -> bool:
        """Decrypt what has come, up to READ_BYTES, and serve it; return False at the end."""
        self._take_in()
        data, is_open = bytearray(), True
        try:
            while len(data) < READ_BYTES:
                part = self._tls.read(READ_BYTES - len(data))
                if not part:
                    is_open = False
                    break
                data += part
        except ssl.SSLWantReadError:
            self._is_dry = True
        except ENDED:
            is_open = False
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS: {failure_sentence(error.reason, None)}") from None
        finally:
            self._pass_on()
        if not is_open:
            self._is_dry = True
        if data:
            self.stream.note("heard", data)
            self._hand_on(data, now_ms)
        return is_open

    def hang_up(self) -> None:
        """Say goodbye and close; what was sent still arrives."""
        if self._is_released:
            return
        if not self.is_shaking:
            with suppress(ssl.SSLError, ValueError):
                self._tls.unwrap()
            self._pass_on()
        super().hang_up()

    def release(self) -> Stream:
        """Leave the stream to the caller, who closes it."""
        self._is_released = True
        self.stream.on_arrival = None
        return self.stream

    def _take_in(self) -> None:
        """Give OpenSSL what has come."""
        if self.stream.has_bytes:
            self._incoming.write(self.stream.take(READ_BYTES))
            self._is_dry = False
        elif self.stream.has_ended:
            self._incoming.write_eof()

    def _send(self, data: bytes) -> None:
        self.stream.note("said", data)
        view = memoryview(data)
        for at in range(0, len(view), SEND_BYTES):
            part = view[at : at + SEND_BYTES]
            try:
                while part:
                    part = part[self._tls.write(part) :]
            except ENDED:
                raise BrokenPipeError(errno.EPIPE, "the client has gone") from None
            except ssl.SSLError as error:
                raise ProtocolError(f"TLS: {failure_sentence(error.reason, None)}") from None
            self._pass_on()

    def _pass_on(self) -> None:
        """Send the records that are made."""
        if self._outgoing.pending:
            self.stream.send_now(self._outgoing.read())
