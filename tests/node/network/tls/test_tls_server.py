"""The socket server with TLS, against real sockets on loopback."""

import logging
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from ottla.model.settings.security.sasl import SASL_SSL
from ottla.model.settings.security.tls import REQUESTED, REQUIRED, SSL, TlsConfig
from ottla.model.tls.context_driver import client_context
from ottla.model.tls.principal_mapping import parse_principal_rules
from ottla.node.clock_driver import RealClock
from ottla.node.network.dispatch import Dispatcher, RequestContext
from ottla.node.network.listener import HandshakeFailedError, Listener
from ottla.node.network.server.server_driver import SocketServer
from ottla.node.network.server.server_opening_driver import open_socket_server
from ottla.node.network.tls import handshakes
from ottla.node.network.tls.encrypted_channel_driver import TlsChannel
from ottla.node.network.tls.served_tls_driver import ServedTls
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.disk.slice import FileSlice
from ottla.wire.apis import FETCH, HEARTBEAT, PRODUCE
from ottla.wire.codec import encode
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

HALF_OPEN_COUNT = 2_000


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def heartbeat(correlation_id: int) -> bytes:
    body = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
    return framed(encode_request_header(HEARTBEAT, 3, correlation_id, "t") + body)


def produce(correlation_id: int, records: bytes) -> bytes:
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[data])
    body = encode(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 7)
    return framed(encode_request_header(PRODUCE, 7, correlation_id, "t") + body)


def fetch(correlation_id: int) -> bytes:
    body = encode(FetchRequest(), 11)
    return framed(encode_request_header(FETCH, 11, correlation_id, "t") + body)


def on_heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse()


@asynccontextmanager
async def serving(
    *listeners: Listener, dispatcher: Dispatcher | None = None, disk: Disk | None = None
) -> AsyncIterator[SocketServer]:
    async with open_socket_server(
        listeners,
        dispatcher or Dispatcher({HEARTBEAT: on_heartbeat}),
        clock=RealClock(),
        disk=disk or RealDisk(),
    ) as server:
        yield server


@pytest.fixture
def listener(authority: "CertificateAuthority") -> Listener:
    return encrypted(TlsConfig(certificate_location=str(authority.issue())))


@pytest.fixture
def trusting(authority: "CertificateAuthority") -> ssl.SSLContext:
    return client_context(TlsConfig(trust_location=str(authority.file)))


def encrypted(config: TlsConfig, protocol: str = SSL, name: str = "SSL") -> Listener:
    tls = ServedTls(protocol, config, failure_delay_ms=100)
    return Listener(name=name, host="127.0.0.1", port=0, tls=tls)


def tls_of(listener: Listener) -> ServedTls:
    assert isinstance(listener.tls, ServedTls)
    return listener.tls


async def connect(
    server: SocketServer, context: ssl.SSLContext, *, host: str = "localhost"
) -> trio.SSLStream[trio.SocketStream]:
    stream = await trio.open_tcp_stream(*server.addresses["SSL"])
    encrypted = trio.SSLStream(stream, context, server_hostname=host)
    try:
        await encrypted.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return encrypted


async def read_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = await stream.receive_some(size - len(data))
        assert part, f"closed after {len(data)} of {size} bytes"
        data += part
    return bytes(data)


async def read_answer(stream: trio.abc.ReceiveStream) -> tuple[int, bytes]:
    (length,) = struct.unpack(">i", await read_exactly(stream, 4))
    answer = await read_exactly(stream, length)
    return struct.unpack_from(">i", answer)[0], answer[4:]


async def test_pipelined_requests_are_answered_in_order(
    listener: Listener, trusting: ssl.SSLContext
) -> None:
    async with serving(listener) as server, await connect(server, trusting) as stream:
        # More than the server's buffer, in records whose borders are no frames' borders.
        count = 10_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, b"".join(heartbeat(i) for i in range(count)))
            for number in range(count):
                assert (await read_answer(stream))[0] == number
    assert tls_of(listener).counts.successes == 1


async def test_a_request_sent_byte_by_byte_is_answered(
    listener: Listener, trusting: ssl.SSLContext
) -> None:
    async with serving(listener) as server, await connect(server, trusting) as stream:
        for byte in heartbeat(9):
            await stream.send_all(bytes([byte]))
        assert (await read_answer(stream))[0] == 9


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_large_requests_come_whole(
    listener: Listener, trusting: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    trusting.maximum_version = version
    seen: list[bytes] = []

    def on_produce(context: RequestContext, request: ProduceRequest) -> ProduceResponse:
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, bytes | bytearray | memoryview)
        seen.append(bytes(records))
        return ProduceResponse()

    sizes = [1, 16_383, 16_384, 100_000, 262_144, 3_000_000, 5]
    sent = [os.urandom(size) for size in sizes]
    async with (
        serving(listener, dispatcher=Dispatcher({PRODUCE: on_produce})) as server,
        await connect(server, trusting) as stream,
    ):
        for number, records in enumerate(sent):
            await stream.send_all(produce(number, records))
        for number in range(len(sent)):
            assert (await read_answer(stream))[0] == number
    assert seen == sent


@asynccontextmanager
async def fetching(
    listener: Listener, path: Path, sizes: list[int], disk: RealDisk
) -> AsyncIterator[SocketServer]:
    file = disk.open(str(path))

    def on_fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
        at, partitions = 0, []
        for index, size in enumerate(sizes):
            records = FileSlice(file, at, size)
            partitions.append(PartitionData(partition_index=index, records=records))
            at += size
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    async with serving(listener, dispatcher=Dispatcher({FETCH: on_fetch}), disk=disk) as server:
        yield server
    file.close()


async def test_file_slices_arrive_whole_also_when_the_client_reads_late(
    listener: Listener, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    sizes = [10, 100_000, 1, 6_000_000, 300, 16_384]
    content = os.urandom(sum(sizes))
    (tmp_path / "log").write_bytes(content)
    async with (
        RealDisk() as disk,
        fetching(listener, tmp_path / "log", sizes, disk) as server,
        await connect(server, trusting) as stream,
    ):
        for number in range(3):
            await stream.send_all(fetch(number))
        # The server's socket is full by now, in the middle of a record.
        await trio.sleep(0.2)
        for number in range(3):
            found, answer = await read_answer(stream)
            assert found == number
            at = 0
            for size in sizes:
                assert content[at : at + size] in answer
                at += size


async def test_a_file_that_ends_within_its_slice_closes_the_connection(
    listener: Listener, trusting: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "log").write_bytes(bytes(1000))
    async with RealDisk() as disk, fetching(listener, tmp_path / "log", [1000], disk) as server:
        os.truncate(tmp_path / "log", 500)
        async with await connect(server, trusting) as stream:
            await stream.send_all(fetch(1))
            with trio.fail_after(60), pytest.raises(AssertionError, match="closed after"):
                await read_answer(stream)
    assert "ended by an unexpected error" in caplog.text


async def test_a_client_is_the_user_its_certificate_stands_for(
    authority: "CertificateAuthority",
) -> None:
    users: list[str] = []

    def note(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        users.append(context.peer.user)
        return HeartbeatResponse()

    bare = TlsConfig(trust_location=str(authority.file))
    known = TlsConfig(
        trust_location=str(authority.file),
        certificate_location=str(authority.issue("c", common_name="Me", unit="staff")),
    )
    config = TlsConfig(
        certificate_location=str(authority.issue()),
        trust_location=str(authority.file),
        client_auth=REQUESTED,
        principal_rules=parse_principal_rules("RULE:CN=([^,]*),OU=staff,.*/$1/L"),
    )
    for protocol in (SSL, SASL_SSL):
        async with serving(
            encrypted(config, protocol), dispatcher=Dispatcher({HEARTBEAT: note})
        ) as server:
            for client in (bare, known):
                async with await connect(server, client_context(client)) as stream:
                    await stream.send_all(heartbeat(1))
                    await read_answer(stream)
    # Who logs in is who it logs in as.
    assert users == ["ANONYMOUS", "me", "ANONYMOUS", "ANONYMOUS"]


def said_to(address: tuple[str, int], context: ssl.SSLContext, host: str) -> str:
    """Return the error of a refused client, which sends more than it should."""
    with socket.create_connection(address) as sock:
        try:
            with context.wrap_socket(sock, server_hostname=host) as stream:
                stream.sendall(heartbeat(1) * 100)
                assert not stream.recv(1)
        except ssl.SSLError as error:
            return str(error)
    return "nothing"


async def refusal(server: SocketServer, config: TlsConfig, host: str = "localhost") -> str:
    context = client_context(config)
    return await trio.to_thread.run_sync(said_to, server.addresses["SSL"], context, host)


async def test_a_refused_client_gets_the_reason_and_other_clients_are_undisturbed(
    authority: "CertificateAuthority",
    new_authority: Callable[[str], "CertificateAuthority"],
    caplog: pytest.LogCaptureFixture,
) -> None:
    bare = TlsConfig(trust_location=str(authority.file))
    stranger = TlsConfig(
        trust_location=str(authority.file),
        certificate_location=str(new_authority("other").issue("c")),
    )
    known = TlsConfig(
        trust_location=str(authority.file), certificate_location=str(authority.issue("c"))
    )
    listener = encrypted(
        TlsConfig(
            certificate_location=str(authority.issue()),
            trust_location=str(authority.file),
            client_auth=REQUIRED,
        )
    )
    with trio.fail_after(60):
        async with (
            serving(listener) as server,
            await connect(server, client_context(known)) as other,
        ):
            assert "certificate required" in await refusal(server, bare)
            assert "unknown ca" in await refusal(server, stranger)
            foreign = TlsConfig(trust_location=str(new_authority("other").file))
            assert "certificate verify failed" in await refusal(server, foreign)
            assert "Hostname mismatch" in await refusal(server, known, "elsewhere")
            await other.send_all(heartbeat(7))
            assert (await read_answer(other))[0] == 7
            counts = tls_of(listener).counts
            assert (counts.successes, counts.failures) == (1, 4)
            await other.aclose()
            while server.connection_count:
                await trio.sleep(0.01)
    for sentence in (
        "the client has shown no certificate, and ssl.client.auth is required",
        "the client's certificate is not accepted: unable to get local issuer certificate",
        "the client does not trust the CA of this broker's certificate",
        "does not accept this broker's certificate",
    ):
        assert sentence in caplog.text
    assert "unexpected" not in caplog.text


async def test_no_rule_for_a_certificate_is_no_user(
    authority: "CertificateAuthority", caplog: pytest.LogCaptureFixture
) -> None:
    known = TlsConfig(
        trust_location=str(authority.file),
        certificate_location=str(authority.issue("c", common_name="me\x1b[31m")),
    )
    listener = encrypted(
        TlsConfig(
            certificate_location=str(authority.issue()),
            trust_location=str(authority.file),
            client_auth=REQUIRED,
            principal_rules=parse_principal_rules("RULE:CN=you,.*/you/"),
        )
    )
    async with serving(listener) as server:
        await refusal(server, known)
    assert tls_of(listener).counts.failures == 1
    assert "no rule of ssl.principal.mapping.rules maps CN=me\\x1b[31m,O" in caplog.text


async def test_a_certificate_with_a_name_too_long_to_map_is_refused_and_not_shown(
    authority: "CertificateAuthority",
) -> None:
    served = tls_of(
        encrypted(
            TlsConfig(
                certificate_location=str(authority.issue()),
                trust_location=str(authority.file),
                client_auth=REQUIRED,
                principal_rules=parse_principal_rules("RULE:.*?/x/"),
            )
        )
    )
    key = Ed25519PrivateKey.generate()
    units = [x509.NameAttribute(x509.NameOID.ORGANIZATIONAL_UNIT_NAME, "a" * 64)] * 30
    named = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(units))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2_020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2_040, 1, 1, tzinfo=UTC))
        .sign(key, None)
    )
    with pytest.raises(HandshakeFailedError) as refused:
        served.user_of(named.public_bytes(Encoding.DER))
    assert "a name of 2039 characters" in str(refused.value)
    assert "aaa" not in str(refused.value)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (heartbeat(1), "the client does not speak TLS; its security.protocol must be SSL"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "the client speaks HTTP"),
        (b"\x16\x03\x01\x00\x05hello", "failed"),
    ],
)
async def test_a_client_without_tls_is_closed_with_a_hint_in_the_log(
    listener: Listener, said: bytes, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(listener) as server:
        async with await trio.open_tcp_stream(*server.addresses["SSL"]) as stream:
            await stream.send_all(said)
            with trio.fail_after(60), suppress(trio.BrokenResourceError):
                while await stream.receive_some():
                    pass
        assert server.connection_count == 0
    assert hint in caplog.text
    assert tls_of(listener).counts.failures == 1


async def test_a_client_with_tls_on_a_plain_listener_is_named_in_the_log(
    trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Listener(name="SSL", host="127.0.0.1", port=0)) as server:
        with trio.fail_after(60), pytest.raises(trio.BrokenResourceError):
            await connect(server, trusting)
    assert "the client speaks TLS to a plain listener" in caplog.text


async def test_a_port_that_is_only_probed_leaves_no_line(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(listener) as server:
        for said in (b"", b"\x16\x03\x01"):
            stream = await trio.open_tcp_stream(*server.addresses["SSL"])
            await stream.send_all(said)
            await stream.aclose()
        with trio.fail_after(60):
            while server.accepted_count < 2 or server.connection_count:
                await trio.sleep(0.01)
    assert caplog.records == []
    assert tls_of(listener).counts.failures == 0


async def test_half_open_handshakes_neither_stall_the_others_nor_last(
    listener: Listener, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_MS_MAX", 3_000)
    hello = client_hello(trusting)
    with trio.fail_after(120):
        async with serving(listener) as server:
            address = server.addresses["SSL"]
            open_stream = await connect(server, trusting)
            socks: list[socket.socket] = []
            for number in range(HALF_OPEN_COUNT):
                sock = socket.create_connection(address)
                # A third says nothing, a third a part of the hello, a third all of it.
                sock.sendall((b"", hello[:100], hello)[number % 3])
                socks.append(sock)
                if number % 50 == 0:
                    await open_stream.send_all(heartbeat(number))
                    assert (await read_answer(open_stream))[0] == number
            async with await connect(server, trusting) as another:
                await another.send_all(heartbeat(7))
                assert (await read_answer(another))[0] == 7
            while server.connection_count > 1:
                await open_stream.send_all(heartbeat(8))
                assert (await read_answer(open_stream))[0] == 8
                await trio.sleep(0.02)
            for sock in socks:
                sock.close()
            await open_stream.aclose()
    assert len(server._handshakes) == 0
    assert not server._handshakes.queued


def client_hello(context: ssl.SSLContext) -> bytes:
    """Return the first bytes of a client's TLS handshake."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(received, sent, server_hostname="localhost").do_handshake()
    return sent.read()


async def test_old_versions_and_renegotiation_are_refused(
    authority: "CertificateAuthority", listener: Listener
) -> None:
    async with serving(listener) as server:
        host, port = server.addresses["SSL"]
        for option in ("-tls1", "-tls1_1"):
            said = await openssl(f"{host}:{port}", option, "-cipher", "ALL:@SECLEVEL=0")
            assert "Cipher is (NONE)" in said or "no protocols available" in said
        said = await openssl(f"{host}:{port}", "-tls1_2")
        assert "Protocol  : TLSv1.2" in said
        assert "Compression: NONE" in said
        assert "No ALPN negotiated" in said
        said = await openssl(f"{host}:{port}", "-tls1_2", input=b"R\n")
        assert "no renegotiation" in said.lower() or "RENEGOTIATING" in said
        # One that asks for it is not served a second handshake.
        assert tls_of(listener).counts.successes == 2


async def openssl(address: str, *options: str, input: bytes = b"Q\n") -> str:
    done = await trio.run_process(
        ["openssl", "s_client", "-connect", address, *options],
        stdin=input,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    return (done.stdout + done.stderr).decode()


async def test_a_request_in_many_small_records_is_read_in_few_turns(
    listener: Listener, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    # librdkafka sends each message in a record of its own.
    reads = 0
    read = TlsChannel.read

    def counted(channel: TlsChannel, now_ms: int) -> bool:
        nonlocal reads
        reads += 1
        return read(channel, now_ms)

    monkeypatch.setattr(TlsChannel, "read", counted)
    data = heartbeat(1) * 1_000
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    async with serving(listener) as server:
        stream = await trio.open_tcp_stream(*server.addresses["SSL"])
        tls = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await stream.send_all(outgoing.read())
                incoming.write(await stream.receive_some(65_536))
        for at in range(0, len(data), 100):
            tls.write(data[at : at + 100])
        await stream.send_all(outgoing.read())
        answered = 0
        while answered < 14 * 1_000:
            try:
                answered += len(tls.read(65_536))
            except ssl.SSLWantReadError:
                incoming.write(await stream.receive_some(65_536))
        await stream.aclose()
    assert reads < len(data) / 100 / 5
