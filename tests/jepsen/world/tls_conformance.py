"""Contract of an encrypted channel, over a socket and in the world, as checks that both pass.

A check gets the way to the bytes of a server that echoes heartbeats and asks for certificates, and
speaks TLS itself, so that it decides what is said when, and in which pieces.
"""

import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import trio

from ottla.jepsen.world.whole.faults.untrusted_clients import heartbeat
from ottla.model.seams import ByteStream
from ottla.node.network.listener import HandshakeCounts
from ottla.node.network.tls.handshakes import HANDSHAKE_MS_MAX
from tests.jepsen.world.transport_conformance import GONE, PATIENCE_S, Reach, is_at_end, read_id

READ_BYTES = 64 << 10
FLOOD_COUNT = 20_000
"""Heartbeats whose unread responses are more than cramped buffers hold."""

KEYS_LAST = 500
"""Requests after which a client last changes its keys, if it does."""

NEW_KEYS_COUNT = 200
"""Changes of keys in a row, without data between them."""

PIECE_BYTES = 7
"""No record's length is a multiple of it for long."""


@dataclass(frozen=True, slots=True)
class TlsReach:
    """A server with TLS, and its clients' credentials."""

    bytes: Reach
    """The way to it below TLS."""
    known: ssl.SSLContext
    """A client with a certificate that the server accepts."""
    bare: ssl.SSLContext
    """A client without any."""
    stranger: ssl.SSLContext
    """A client whose certificate is of a CA that the server does not know."""
    host: str
    """The name in the server's certificate."""
    counts: HandshakeCounts
    users: list[str]
    """Principal of each heartbeat."""
    pass_time: Callable[[float], Awaitable[None]]
    """Lets seconds pass for the server."""
    change_keys: Callable[[ssl.SSLObject], None]
    """Has one end encrypt with new keys from now on, and ask the other one to do so, too."""


Check = Callable[[TlsReach], Awaitable[None]]


class RawTls:
    """A client that sends nothing by itself; has the part of `ByteStream` that the checks need."""

    def __init__(self, stream: ByteStream, context: ssl.SSLContext, host: str) -> None:
        self.stream = stream
        self.received, self.sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.received, self.sent, server_hostname=host)

    async def shake_hands(self, piece_bytes: int = 1 << 20) -> None:
        """Come to terms, saying everything in pieces."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.pass_on(piece_bytes)
                await self.take_in()
            else:
                await self.pass_on(piece_bytes)
                return

    async def pass_on(self, piece_bytes: int = 1 << 20) -> None:
        """Send the records that are made."""
        data = self.sent.read()
        for at in range(0, len(data), piece_bytes):
            await self.stream.send_all(data[at : at + piece_bytes])

    async def take_in(self) -> None:
        """Wait for bytes, or their end."""
        data = await self.stream.receive_some(READ_BYTES)
        if data:
            self.received.write(data)
        else:
            self.received.write_eof()

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return what has come; empty after a goodbye, SSLEOFError at an end without one."""
        while True:
            try:
                return self.tls.read(max_bytes)
            except ssl.SSLWantReadError:
                await self.take_in()
            except ssl.SSLZeroReturnError:
                return b""


async def _dial(
    reach: TlsReach, context: ssl.SSLContext | None = None, piece_bytes: int = 1 << 20
) -> RawTls:
    stream = await reach.bytes.transport.connect(reach.bytes.host, reach.bytes.port)
    client = RawTls(stream, context or reach.known, reach.host)
    with trio.fail_after(PATIENCE_S):
        await client.shake_hands(piece_bytes)
    return client


async def _forgotten(reach: TlsReach) -> None:
    with trio.fail_after(PATIENCE_S):
        while reach.bytes.connection_count():
            await trio.sleep(0.001)


async def a_handshake_may_come_in_pieces(reach: TlsReach) -> None:
    """And so may the records after it."""
    client = await _dial(reach, piece_bytes=PIECE_BYTES)
    client.tls.write(heartbeat(3))
    await client.pass_on(PIECE_BYTES)
    with trio.fail_after(PATIENCE_S):
        assert await read_id(client) == 3
    assert (reach.counts.successes, reach.counts.failures) == (1, 0)
    await client.stream.aclose()


async def a_request_may_come_with_the_last_words_of_the_handshake(reach: TlsReach) -> None:
    """No socket event announces the request: OpenSSL has its bytes already."""
    stream = await reach.bytes.transport.connect(reach.bytes.host, reach.bytes.port)
    client = RawTls(stream, reach.known, reach.host)
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                client.tls.do_handshake()
            except ssl.SSLWantReadError:
                await client.pass_on()
                await client.take_in()
            else:
                break
        client.tls.write(heartbeat(4))
        await client.pass_on()
        assert await read_id(client) == 4
    await stream.aclose()


async def all_of_a_large_arrival_is_served(reach: TlsReach) -> None:
    """Many records at once, of one frame each: the server reads those that OpenSSL has buffered."""
    client = await _dial(reach)
    for number in range(2_000):
        client.tls.write(heartbeat(number))
    await client.pass_on()
    with trio.fail_after(PATIENCE_S):
        for number in range(2_000):
            assert await read_id(client) == number
    await client.stream.aclose()


async def answers_that_were_held_back_are_whole(reach: TlsReach) -> None:
    """A client that reads late stops the writes within a record."""
    client = await _dial(reach)

    async def ask() -> None:
        frames = b"".join(heartbeat(number) for number in range(FLOOD_COUNT))
        for at in range(0, len(frames), 16_000):
            client.tls.write(frames[at : at + 16_000])
            await client.pass_on()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.3)
        with trio.fail_after(PATIENCE_S):
            for number in range(FLOOD_COUNT):
                assert await read_id(client) == number
    await client.stream.aclose()


async def keys_may_change_at_any_time(reach: TlsReach) -> None:
    """Also while answers wait that were made with the old ones."""
    client = await _dial(reach)
    count = FLOOD_COUNT * 3 // 4

    async def ask() -> None:
        for at in range(0, count, KEYS_LAST):
            reach.change_keys(client.tls)
            client.tls.write(b"".join(heartbeat(number) for number in range(at, at + KEYS_LAST)))
            await client.pass_on()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.2)
        with trio.fail_after(PATIENCE_S):
            for number in range(count):
                assert await read_id(client) == number
    # With nothing else under way, too.
    reach.change_keys(client.tls)
    client.tls.write(heartbeat(1))
    await client.pass_on()
    with trio.fail_after(PATIENCE_S):
        assert await read_id(client) == 1
    await client.stream.aclose()


async def a_flood_of_new_keys_ends_its_connection_alone(reach: TlsReach) -> None:
    """Records without data are counted; OpenSSL alone would take them without an end."""
    client, other = await _dial(reach), await _dial(reach)
    with suppress(*GONE):
        for _ in range(NEW_KEYS_COUNT):
            reach.change_keys(client.tls)
            with suppress(ssl.SSLWantReadError):
                client.tls.do_handshake()
            await client.pass_on()
    with trio.fail_after(PATIENCE_S), suppress(*GONE, ssl.SSLError):
        assert await client.receive_some(1) == b""
    other.tls.write(heartbeat(2))
    await other.pass_on()
    with trio.fail_after(PATIENCE_S):
        assert await read_id(other) == 2
    await client.stream.aclose()
    await other.stream.aclose()


async def what_was_asked_before_a_goodbye_is_answered(reach: TlsReach) -> None:
    """The client has nothing further to send, says so, and still reads."""
    client = await _dial(reach)
    client.tls.write(b"".join(heartbeat(number) for number in range(500)))
    with suppress(ssl.SSLWantReadError):
        client.tls.unwrap()
    await client.pass_on()
    with trio.fail_after(PATIENCE_S):
        for number in range(500):
            assert await read_id(client) == number
        assert await client.receive_some(1) == b""
    await _forgotten(reach)
    await client.stream.aclose()


async def a_goodbye_is_understood(reach: TlsReach) -> None:
    """The server sends its own close_notify, and drops the client."""
    client = await _dial(reach)
    with suppress(ssl.SSLWantReadError):
        client.tls.unwrap()
    await client.pass_on()
    await _forgotten(reach)
    await client.stream.aclose()


async def a_server_that_closes_says_goodbye(reach: TlsReach) -> None:
    """An end without one could be a stranger's doing."""
    client = await _dial(reach)
    client.tls.write(heartbeat(1))
    await client.pass_on()
    with trio.fail_after(PATIENCE_S):
        assert await read_id(client) == 1
        await reach.bytes.close_server()
        assert await client.receive_some(1) == b""
    await client.stream.aclose()


async def a_client_is_the_user_of_its_certificate(reach: TlsReach) -> None:
    """As the listener's rules map its subject."""
    client = await _dial(reach)
    client.tls.write(heartbeat(1))
    await client.pass_on()
    with trio.fail_after(PATIENCE_S):
        await read_id(client)
    assert reach.users == ["me"]
    await client.stream.aclose()


async def _refusal(reach: TlsReach, context: ssl.SSLContext) -> str:
    client = None
    try:
        client = await _dial(reach, context)
        # TLS 1.3 tells a client only after it thinks that it is in.
        client.tls.write(heartbeat(1) * 100)
        await client.pass_on()
        with trio.fail_after(PATIENCE_S):
            await client.receive_some(1)
    except ssl.SSLError as error:
        return str(error)
    finally:
        if client is not None:
            await client.stream.aclose()
    raise AssertionError("a client did not get the reason")


async def a_refused_client_gets_the_reason(reach: TlsReach) -> None:
    """By an alert, also when it has said more than it should."""
    assert "certificate required" in (await _refusal(reach, reach.bare)).lower()
    assert "unknown ca" in (await _refusal(reach, reach.stranger)).lower()
    assert reach.counts.failures == 2
    assert not reach.users
    await _forgotten(reach)


async def who_speaks_no_tls_is_refused(reach: TlsReach) -> None:
    """A plain request is a failed handshake, of which nothing is served."""
    stream = await reach.bytes.transport.connect(reach.bytes.host, reach.bytes.port)
    await stream.send_all(heartbeat(1))
    with trio.fail_after(PATIENCE_S):
        while not reach.counts.failures:
            await trio.sleep(0.001)
    await stream.aclose()
    await _forgotten(reach)
    assert not reach.users


async def who_leaves_within_a_handshake_is_forgotten(reach: TlsReach) -> None:
    """This counts as no failure."""
    stream = await reach.bytes.transport.connect(reach.bytes.host, reach.bytes.port)
    client = RawTls(stream, reach.known, reach.host)
    with suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    await stream.send_all(client.sent.read()[:50])
    await trio.sleep(0.05)
    assert reach.bytes.connection_count() == 1
    stream.abort()
    await _forgotten(reach)
    assert reach.counts.failures == 0


async def a_client_silent_during_its_handshake_is_dropped(reach: TlsReach) -> None:
    """The end may arrive together with the bytes before it."""
    stream = await reach.bytes.transport.connect(reach.bytes.host, reach.bytes.port)
    client = RawTls(stream, reach.known, reach.host)
    with suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    await stream.send_all(client.sent.read()[:50])
    await stream.aclose()
    await trio.sleep(0.01)
    await _forgotten(reach)
    assert reach.counts.failures == 0


async def a_handshake_has_a_deadline(reach: TlsReach) -> None:
    """A client that says nothing holds a connection for so long and not longer."""
    stream = await reach.bytes.transport.connect(reach.bytes.host, reach.bytes.port)
    await trio.sleep(0.05)
    assert reach.bytes.connection_count() == 1
    await reach.pass_time(HANDSHAKE_MS_MAX / 1000 + 1)
    assert await is_at_end(stream)
    await _forgotten(reach)
    await stream.aclose()


async def a_forged_record_ends_its_connection_alone(reach: TlsReach) -> None:
    """Nothing of it is served."""
    client, other = await _dial(reach), await _dial(reach)
    client.tls.write(heartbeat(1))
    record = bytearray(client.sent.read())
    record[-1] ^= 1
    await client.stream.send_all(bytes(record))
    with trio.fail_after(PATIENCE_S):
        try:
            assert await client.receive_some(1) == b""
        except (ssl.SSLError, *GONE):
            pass
        assert not reach.users
        other.tls.write(heartbeat(2))
        await other.pass_on()
        assert await read_id(other) == 2
    await client.stream.aclose()
    await other.stream.aclose()


CHECKS: tuple[Check, ...] = (
    a_handshake_may_come_in_pieces,
    a_request_may_come_with_the_last_words_of_the_handshake,
    all_of_a_large_arrival_is_served,
    answers_that_were_held_back_are_whole,
    keys_may_change_at_any_time,
    a_flood_of_new_keys_ends_its_connection_alone,
    what_was_asked_before_a_goodbye_is_answered,
    a_goodbye_is_understood,
    a_server_that_closes_says_goodbye,
    a_client_is_the_user_of_its_certificate,
    a_refused_client_gets_the_reason,
    who_speaks_no_tls_is_refused,
    who_leaves_within_a_handshake_is_forgotten,
    a_client_silent_during_its_handshake_is_dropped,
    a_handshake_has_a_deadline,
    a_forged_record_ends_its_connection_alone,
)
