"""The server's end of a TLS connection as a trio stream, with the limits of `session_driver`.

`trio.SSLStream` is not used, because it lets OpenSSL consume any number of received records in one
read. With an endless series of KeyUpdate records, a read would never return.
"""

import ssl
import time

import trio

from ottla.model.limits import KIB
from ottla.model.tls.session_driver import NOTHING, RECORD_BYTES, TlsSession

RECEIVE_BYTES = 16 * KIB
"""Maximum number of bytes of ciphertext that one system call reads. Also the maximum number of
bytes of plaintext that a read returns if the caller specifies no size."""


class TlsServerStream(trio.abc.Stream):
    """TLS stream of a server, for use by one task at a time. The first read performs the handshake.

    Methods raise trio.BrokenResourceError if the client has closed the connection or violates TLS,
    and TlsFloodError if it sends more records without data than allowed. As in HTTPS, the end of a
    connection without close_notify counts as the end of the stream.
    """

    def __init__(self, below: trio.abc.Stream, context: ssl.SSLContext) -> None:
        self._below = below
        self._session = TlsSession(context, time.perf_counter_ns)
        self._is_shaking = True

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return received bytes, at most `max_bytes`. Returns no bytes at the end of the stream."""
        session = self._session
        room = memoryview(bytearray(max_bytes or RECEIVE_BYTES))
        ciphertext = NOTHING
        while True:
            size = 0
            try:
                if self._is_shaking:
                    self._is_shaking = not session.shake_hands(ciphertext)
                else:
                    size = session.decrypt(room, ciphertext)
            except ssl.SSLError as error:
                await self._pass_on()
                raise trio.BrokenResourceError from error
            await self._pass_on()
            if size:
                return bytes(room[:size])
            if session.has_ended:
                return b""
            ciphertext = NOTHING
            if session.has_unread:
                await trio.lowlevel.checkpoint()
                continue
            data = await self._below.receive_some(RECEIVE_BYTES)
            if not data:
                return b""
            ciphertext = memoryview(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send all bytes, record by record."""
        if self._is_shaking:
            raise trio.BrokenResourceError("the handshake has not ended")
        view = memoryview(data)
        for at in range(0, len(view), RECORD_BYTES):
            try:
                record = self._session.encrypt(view[at : at + RECORD_BYTES])
            except ssl.SSLError as error:
                raise trio.BrokenResourceError from error
            await self._below.send_all(record)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket is writable."""
        await self._below.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Send close_notify, and close the underlying stream."""
        try:
            if not self._is_shaking:
                await self._below.send_all(self._session.take_close_notify())
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await self._below.aclose()

    async def _pass_on(self) -> None:
        """Send the output that the TLS session itself has produced: handshake, new keys, alerts."""
        if self._session.has_output:
            await self._below.send_all(self._session.take_output())
