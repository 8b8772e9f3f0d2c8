"""TLS for the connections of clients, over any byte stream. Error messages state the cause and a
remedy.

The context variable `TLS` applies to a task and to all tasks that it starts. A `TlsDialer` creates
the SSL context of a configuration once, and again after its files have changed. A long-running
client therefore presents a new certificate, and trusts new CAs, without a restart.
"""

import errno
import logging
import ssl
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

import trio

from ottla.model.errors import ConfigError
from ottla.model.limits import KIB
from ottla.model.seams import ByteStream
from ottla.model.tls.changed_files_driver import Stamps, stamps_of

if TYPE_CHECKING:
    from ottla.model.settings.security.tls import TlsConfig

logger = logging.getLogger("ottla.client.network")

RECEIVE_BYTES = 256 * KIB
"""Number of bytes that are requested from the underlying stream at a time."""

SEND_BYTES = 256 * KIB
"""Number of bytes that are encrypted before their TLS records are sent. A larger value uses more
memory. With a smaller value, more calls are needed."""

RECORD_BYTES = 16 * KIB

LOOKS_AGAIN_AFTER_S = 10.0
"""Minimum time, in seconds, between two checks for changed certificate files. A check is made when
a connection is opened."""

GOODBYE_S = 0.5
"""Maximum time, in seconds, that closing a stream waits until the close_notify alert is sent."""

ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError)

GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""Exceptions of a stream that was closed, or whose peer has disconnected."""

UNTRUSTED = (2, 18, 19, 20, 21)
"""OpenSSL's codes (X509_V_ERR_…) for a certificate from an unknown CA."""
NOT_YET_VALID, EXPIRED = 9, 10
WRONG_NAMES = (62, 64)
"""OpenSSL's codes (X509_V_ERR_…) for a certificate that does not contain the host name or IP
address of the server."""

SPEAKS_NO_TLS = (
    "it does not speak TLS there; security.protocol must be PLAINTEXT, or SASL_PLAINTEXT with a "
    "login"
)
HUNG_UP = "it hung up within the TLS handshake; " + SPEAKS_NO_TLS
REFUSALS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a client's certificate; set "
    "ssl.keystore.location to a PEM file with certificate and key",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it refused the handshake: it may ask for a client's "
    "certificate (ssl.keystore.location), or there is no cipher suite in common",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the CA of our certificate; show one "
    "(ssl.keystore.location) of a CA in the broker's ssl.truststore.location",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired; renew the one in "
    "ssl.keystore.location",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it has no version of our ssl.enabled.protocols",
    "UNSUPPORTED_PROTOCOL": "it has no version of our ssl.enabled.protocols",
    "WRONG_VERSION_NUMBER": SPEAKS_NO_TLS,
    "HTTP_REQUEST": SPEAKS_NO_TLS,
}
"""Explanations of TLS errors for users, by the name of the TLS alert or OpenSSL error."""
NOT_ACCEPTED = ("SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN")


class TlsError(OSError):
    """Error if a TLS connection cannot be established. The message contains the reason and a
    remedy."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EPROTO, sentence)
        self.sentence = sentence


def sentence_of(error: ssl.SSLError, host: str) -> str:
    """Return the cause of a TLS error as text that completes an error message about the broker
    `host`."""
    code = getattr(error, "verify_code", None)
    if code in UNTRUSTED:
        return (
            "its certificate is not of a CA that is trusted here; set ssl.truststore.location "
            "(ssl.ca.location) to the certificate of the broker's CA"
        )
    if code == EXPIRED:
        return "its certificate has expired; renew it on the broker"
    if code == NOT_YET_VALID:
        return "its certificate is not valid yet; check the clocks of both machines"
    if code in WRONG_NAMES:
        return (
            f"its certificate is not for {host}; connect by a name that it has, or issue one "
            "with this name"
        )
    if code:
        return f"its certificate is not accepted: {getattr(error, 'verify_message', code)}"
    reason = error.reason or ""
    if reason in NOT_ACCEPTED:
        return "it does not accept our certificate; see the broker's log"
    return REFUSALS.get(reason) or f"TLS failed: {(reason or str(error)).lower().replace('_', ' ')}"


def _client_context(config: "TlsConfig") -> ssl.SSLContext:
    # Imported on demand: most clients do not use TLS.
    from ottla.model.tls.context_driver import client_context

    return client_context(config)


class TlsDialer:
    """TLS settings of a client and their SSL context. Any number of connections use it."""

    def __init__(self, config: "TlsConfig") -> None:
        """Read the certificate files.  Raises ConfigError if they are unusable."""
        self._config = config
        self._context = _client_context(config)
        self._signature = stamps_of(config.files)
        self._looked_at: float | None = None
        self._complaint = ""

    @property
    def config(self) -> "TlsConfig":
        """The TLS settings that new connections use."""
        return self._config

    @property
    def context(self) -> ssl.SSLContext:
        """SSL context for a new connection. It is created again if the certificate files have
        changed."""
        now_s = trio.current_time()
        if self._looked_at is None:
            self._looked_at = now_s
        if now_s >= self._looked_at + LOOKS_AGAIN_AFTER_S:
            self._looked_at = now_s
            signature = stamps_of(self._config.files)
            if signature != self._signature:
                self._reload(signature)
        return self._context

    def use(self, config: "TlsConfig") -> None:
        """Replace the TLS settings for new connections. If the new settings are unusable, raises
        ConfigError and keeps the old settings."""
        context = _client_context(config)
        self._config, self._context, self._signature = config, context, stamps_of(config.files)

    def _reload(self, signature: Stamps) -> None:
        try:
            self._context = _client_context(self._config)
        except ConfigError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                logger.error(
                    "new certificates cannot be used, the previous ones stay in use: %s", error
                )
            return
        self._signature = signature
        self._complaint = ""
        logger.info("new certificates for connections to brokers: %s", self._config.files)

    async def encrypted(self, stream: ByteStream, host: str) -> "TlsStream":
        """Return an encrypted stream over `stream`, after the handshake and the verification of the
        server's certificate.

        Closes the stream and raises TlsError if the handshake or the verification fails.
        """
        found = self.over(stream, host)
        try:
            await found.shake_hands()
        except BaseException:
            stream.abort()
            raise
        return found

    def over(self, stream: ByteStream, host: str) -> "TlsStream":
        """Return an encrypted stream over `stream` whose handshake has not been performed yet."""
        return TlsStream(stream, self.context, host)


TLS: ContextVar[TlsDialer | None] = ContextVar("tls", default=None)
"""TLS settings of the current task. They apply to connections that have no TLS settings of their
own. None means that connections are not encrypted."""


class TlsStream:
    """A TLS stream over an unencrypted byte stream. Implements the interface `ByteStream`."""

    __slots__ = (
        "_host",
        "_is_closed",
        "_is_torn",
        "_lock",
        "_received",
        "_sent",
        "_stream",
        "_tls",
    )

    def __init__(self, stream: ByteStream, context: ssl.SSLContext, host: str) -> None:
        self._stream = stream
        self._host = host
        self._received = ssl.MemoryBIO()
        self._sent = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._sent, server_hostname=host)
        self._is_closed = False
        self._is_torn = False
        # TLS records have to be sent in the order in which they were created.
        self._lock = trio.Lock()

    async def shake_hands(self) -> None:
        """Perform the TLS handshake.  Raises TlsError if it fails."""
        try:
            while not await self._step_of_handshake():
                if not await self._take_in():
                    raise TlsError(HUNG_UP)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise TlsError(HUNG_UP) from None

    async def _step_of_handshake(self) -> bool:
        """Perform the next step of the handshake.  Returns True if it was the last one."""
        is_over = False
        try:
            self._tls.do_handshake()
            is_over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            # Send the alert, so that the server can log the reason, too.
            with (
                trio.CancelScope(shield=True, deadline=trio.current_time() + 1),
                suppress(trio.BrokenResourceError, trio.ClosedResourceError),
            ):
                await self._pass_on()
            raise TlsError(sentence_of(error, self._host)) from error
        await self._pass_on()
        return is_over

    async def send_all(self, data: bytes | bytearray | memoryview, /) -> None:
        """Encrypt and send all data."""
        view = memoryview(data)
        async with self._lock:
            for at in range(0, len(view), SEND_BYTES):
                # A concurrent close is not a TLS failure.
                if self._is_closed:
                    raise trio.ClosedResourceError("this end was closed")
                part = view[at : at + SEND_BYTES]
                done = 0
                while done < len(part):
                    try:
                        done += self._tls.write(part[done : done + RECORD_BYTES])
                    except ssl.SSLError as error:
                        raise TlsError(sentence_of(error, self._host)) from error
                await self._send_records()

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Wait for decrypted bytes, and return at least one byte. Returns b"" if the peer has
        closed its side."""
        room = memoryview(bytearray(min(max_bytes, RECEIVE_BYTES)))
        count = await self.receive_into(room)
        return bytes(room[:count])

    async def receive_into(self, room: memoryview, /) -> int:
        """Receive decrypted bytes into the buffer `room` and return their number. Returns 0 if the
        peer has closed its side."""
        has_waited = False
        while True:
            count, has_ended = self._decrypt(room)
            if count or has_ended:
                if not has_waited:
                    await trio.lowlevel.checkpoint()
                return count
            if self._sent.pending:
                await self._pass_on()
            has_waited = True
            await self._take_in()

    def abort(self) -> None:
        """Close the stream at once, without close_notify."""
        self._stream.abort()

    async def aclose(self) -> None:
        """Close the stream. The peer still receives data that was sent before."""
        self._is_closed = True
        # close_notify is sent; that of the peer is not awaited.
        with suppress(ssl.SSLError, ValueError):
            if not self._is_torn:
                self._tls.unwrap()
        try:
            if self._sent.pending and not self._is_torn and not self._lock.locked():
                with trio.move_on_after(GOODBYE_S), suppress(*GONE):
                    await self._stream.send_all(self._sent.read())
        finally:
            await self._stream.aclose()

    def _decrypt(self, room: memoryview) -> tuple[int, bool]:
        """Decrypt received bytes into the buffer `room`.

        Returns the number of decrypted bytes, and True if the peer has closed its side.
        """
        count = 0
        try:
            while count < len(room):
                found = self._tls.read(len(room) - count, room[count:])
                assert isinstance(found, int)
                if not found:
                    return count, True
                count += found
        except ssl.SSLWantReadError:
            return count, False
        except ENDED:
            return count, True
        except ssl.SSLError as error:
            if count:
                return count, False  # the next call finds the error again
            raise TlsError(sentence_of(error, self._host)) from error
        return count, False

    async def _take_in(self) -> bool:
        """Receive encrypted bytes from the underlying stream.  Returns False if the peer has closed
        its side."""
        data = await self._stream.receive_some(RECEIVE_BYTES)
        if not data:
            self._received.write_eof()
            return False
        self._received.write(data)
        return True

    async def _pass_on(self) -> None:
        """Send pending TLS messages, such as handshake messages."""
        async with self._lock:
            if self._sent.pending:
                await self._send_records()

    async def _send_records(self) -> None:
        """Send the finished TLS records.  The caller holds the lock."""
        if self._is_torn:
            raise trio.BrokenResourceError("a send was cut short; records no longer fit together")
        # A cancellation or failure may have sent only part of a TLS record.  The server would take
        # the next record for a forgery, so no further record is sent.
        self._is_torn = True
        await self._stream.send_all(self._sent.read())
        self._is_torn = False
