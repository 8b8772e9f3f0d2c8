"""Encrypted channels: sockets and the world's network pass the same contract."""

import _ssl
import ctypes
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.whole.net import channels, streams
from ottla.model.seams import ByteStream
from ottla.model.settings.security.tls import REQUIRED, SSL, TlsConfig
from ottla.model.tls.context_driver import client_context
from ottla.model.tls.principal_mapping import parse_principal_rules
from ottla.node.network.listener import Listener
from ottla.node.network.server.server_driver import SocketServer
from ottla.node.network.tls import handshakes
from ottla.node.network.tls.served_tls_driver import ServedTls
from tests.jepsen.world.tls_conformance import (
    CHECKS,
    Check,
    TlsReach,
    a_handshake_has_a_deadline,
    answers_that_were_held_back_are_whole,
    keys_may_change_at_any_time,
)
from tests.jepsen.world.transport_conformance import Reach
from tests.jepsen.world.whole.net.test_streams import over_memory, over_sockets

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

OPENSSL = ctypes.CDLL(_ssl.__file__)
OPENSSL.SSL_key_update.argtypes = (ctypes.c_void_p, ctypes.c_int)
SSL_AT = 24
"""Offset of the pointer to OpenSSL's object in CPython's object, for which Python has no name."""

AND_THE_PEER = 1
"""SSL_KEY_UPDATE_REQUESTED"""

SMALL_BYTES = 4_096


def change_keys(tls: ssl.SSLObject) -> None:
    """Send KeyUpdate with the next record."""
    handle = ctypes.c_void_p.from_address(id(tls._sslobj) + SSL_AT)  # type: ignore[attr-defined]
    assert OPENSSL.SSL_key_update(handle, AND_THE_PEER) == 1


class CrampedServer(SocketServer):
    """A server whose sockets have small buffers, so that records are sent in parts."""

    def _open(self, sock: socket.socket, host: str, listener: Listener, now_ms: int) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
        super()._open(sock, host, listener, now_ms)


class CrampedTransport:
    """A transport whose sockets have small buffers: larger ones would hold all data of a check."""

    async def connect(self, host: str, port: int) -> ByteStream:
        below = await trio.open_tcp_stream(host, port)
        below.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
        return cast(ByteStream, below)


NewAuthority = Callable[[str], "CertificateAuthority"]


def served(authority: "CertificateAuthority") -> ServedTls:
    config = TlsConfig(
        certificate_location=str(authority.issue("server")),
        trust_location=str(authority.file),
        client_auth=REQUIRED,
        principal_rules=parse_principal_rules("RULE:CN=([^,]*),OU=staff,.*/$1/L"),
    )
    return ServedTls(SSL, config, failure_delay_ms=100)


def reach_of(
    below: Reach,
    tls: ServedTls,
    users: list[str],
    authority: "CertificateAuthority",
    new_authority: NewAuthority,
) -> TlsReach:
    def client(issuer: "CertificateAuthority | None") -> ssl.SSLContext:
        trusted = str(authority.file)
        if issuer is None:
            return client_context(TlsConfig(trust_location=trusted))
        shown = str(issuer.issue("c", common_name="Me", unit="staff"))
        return client_context(TlsConfig(trust_location=trusted, certificate_location=shown))

    return TlsReach(
        below,
        client(authority),
        client(None),
        client(new_authority("other")),
        "server",
        tls.counts,
        users,
        trio.sleep,
        change_keys,
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_sockets_keep(
    check: Check,
    authority: "CertificateAuthority",
    new_authority: NewAuthority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tls, users = served(authority), list[str]()
    if check is a_handshake_has_a_deadline:
        monkeypatch.setattr(handshakes, "HANDSHAKE_MS_MAX", 300)
    async with over_sockets(tls, users=users) as below:
        reach = reach_of(below, tls, users, authority, new_authority)
        if check is a_handshake_has_a_deadline:
            # The time of sockets is real.
            reach = replace(reach, pass_time=lambda _: trio.sleep(0.4))
        await check(reach)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_world_keeps(
    check: Check,
    authority: "CertificateAuthority",
    new_authority: NewAuthority,
    autojump_clock: MockClock,
) -> None:
    tls, users = served(authority), list[str]()
    async with over_memory(tls, users=users) as below:
        await check(reach_of(below, tls, users, authority, new_authority))


WRITES = (answers_that_were_held_back_are_whole, keys_may_change_at_any_time)


@pytest.mark.parametrize("check", WRITES, ids=lambda check: check.__name__)
async def test_sockets_with_little_room_keep(
    check: Check, authority: "CertificateAuthority", new_authority: NewAuthority
) -> None:
    tls, users = served(authority), list[str]()
    async with over_sockets(tls, users=users, kind=CrampedServer) as below:
        below = replace(below, transport=CrampedTransport())
        await check(reach_of(below, tls, users, authority, new_authority))


@pytest.mark.parametrize("check", WRITES, ids=lambda check: check.__name__)
async def test_the_world_with_little_room_keeps(
    check: Check,
    authority: "CertificateAuthority",
    new_authority: NewAuthority,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "BACKLOG_BYTES_MAX", SMALL_BYTES)
    monkeypatch.setattr(streams, "BACKLOG_BYTES_MAX", SMALL_BYTES)
    tls, users = served(authority), list[str]()
    async with over_memory(tls, users=users) as below:
        await check(reach_of(below, tls, users, authority, new_authority))


async def test_a_crowd_of_handshakes_takes_its_share_of_virtual_time_and_no_other(
    authority: "CertificateAuthority", autojump_clock: MockClock
) -> None:
    # One step costs 1 ms here: the credit is used up, and the rest waits for its share.
    tls, count = served(authority), 2 * handshakes.BURST_MS
    async with over_memory(tls) as below:
        streams = []

        async def come() -> None:
            stream = await below.transport.connect(below.host, below.port)
            streams.append(stream)
            await stream.send_all(b"plain, so that one step is all")

        began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(come)
        with trio.fail_after(5):
            while tls.counts.failures < count:
                await trio.sleep(0.001)
        took_ms = (trio.current_time() - began_s) * 1_000
        for stream in streams:
            await stream.aclose()
    left_ms = count - handshakes.BURST_MS
    assert took_ms > left_ms / handshakes.LOOP_SHARE - 20
