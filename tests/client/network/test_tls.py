"""New certificates of a long-running client."""

import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from ottla.client.network.tls import (
    LOOKS_AGAIN_AFTER_S,
    SEND_BYTES,
    TlsDialer,
    TlsError,
    TlsStream,
)
from ottla.model.settings.security.tls import TlsConfig

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority


async def test_a_dialer_uses_a_new_file_and_keeps_the_old_one_where_that_is_none(
    authority: "CertificateAuthority",
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ottla.client.network")
    file = authority.issue("client")
    dialer = TlsDialer(TlsConfig(certificate_location=str(file)))
    first = dialer.context
    good = file.read_bytes()
    file.write_bytes(b"nothing")
    assert dialer.context is first  # it is not looked at for each connection
    for _ in range(3):
        await trio.sleep(LOOKS_AGAIN_AFTER_S)
        assert dialer.context is first
    assert caplog.text.count("new certificates cannot be used, the previous ones stay in use") == 1
    file.write_bytes(good + b"\n")
    await trio.sleep(LOOKS_AGAIN_AFTER_S)
    assert dialer.context is not first
    assert "new certificates for connections to brokers" in caplog.text


class ScriptedStream:
    """A stream below TLS whose other end is a server in memory."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.to_server, self._from_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self.to_server, self._from_server, server_side=True)
        self.on_send: Callable[[], None] = lambda: None
        self.on_receive: Callable[[], None] = lambda: None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.on_send()
        await trio.lowlevel.checkpoint()
        self.to_server.write(bytes(data))

    async def receive_some(self, max_bytes: int) -> bytes:
        await trio.lowlevel.checkpoint()
        self.on_receive()
        with suppress(ssl.SSLWantReadError):
            self.server.do_handshake()
        return self._from_server.read(max_bytes)

    async def receive_into(self, room: memoryview) -> int:
        raise NotImplementedError

    def abort(self) -> None: ...

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def contexts(authority: "CertificateAuthority") -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's and a client's."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue())
    client = ssl.create_default_context(cafile=str(authority.file))
    client.check_hostname = False
    return server, client


async def test_after_a_send_that_was_cut_short_no_record_follows(
    authority: "CertificateAuthority",
) -> None:
    """The server would call the goodbye a forgery (bad record mac), and warn of it."""
    server, client = contexts(authority)
    below = ScriptedStream(server)
    stream = TlsStream(below, client, "localhost")
    await stream.shake_hands()
    await stream.send_all(b"first")
    assert below.server.read(100) == b"first"
    with trio.CancelScope() as scope:
        below.on_send = scope.cancel
        await stream.send_all(b"second")
    below.on_send = lambda: None
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(b"third")
    await stream.aclose()
    assert below.to_server.pending == 0


async def test_a_send_after_a_close_or_during_it_fails_as_on_a_plain_stream(
    authority: "CertificateAuthority",
) -> None:
    """Found by the world: it was a failure of TLS, "protocol is shutdown"."""
    server, client = contexts(authority)
    below = ScriptedStream(server)
    stream = TlsStream(below, client, "localhost")
    await stream.shake_hands()
    async with trio.open_nursery() as nursery:
        below.on_send = lambda: nursery.start_soon(stream.aclose)
        with pytest.raises(trio.ClosedResourceError):
            # The close has its turn before the second of these, or the third.
            await stream.send_all(bytes(4 * SEND_BYTES))
    with pytest.raises(trio.ClosedResourceError):
        await stream.send_all(b"later")


@pytest.mark.parametrize("at", ["on_send", "on_receive"])
async def test_a_reset_within_the_handshake_is_reported_as_one_of_tls(
    authority: "CertificateAuthority", at: str
) -> None:
    """As a broker that is killed does it; a caller knows no errors of streams."""
    below = ScriptedStream(contexts(authority)[0])

    def reset() -> None:
        raise trio.BrokenResourceError("connection reset by peer")

    setattr(below, at, reset)
    with pytest.raises(TlsError, match="hung up within the TLS handshake"):
        await TlsStream(below, contexts(authority)[1], "localhost").shake_hands()
