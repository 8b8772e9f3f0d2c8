"""The front of a controller's listener, over real loopback sockets, with gRPC behind it."""

import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
import trustme
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue

from ottla.controller.front import front_driver
from ottla.controller.front.front_driver import FrontServer
from ottla.controller.front.front_metrics import front_families
from ottla.controller.front.front_opening_driver import open_front
from ottla.controller.front.front_seam import ListenerService
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.quotas.rates import WindowShape
from ottla.model.settings.connections import ConnectionBounds
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.security.node_tls import node_tls_of
from ottla.model.settings.security.tls import TlsConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.clock_driver import RealClock
from ottla.node.network.connection_quotas import ConnectionQuotas
from ottla.node.network.dispatch import Dispatcher, HandlerResult, RequestContext
from ottla.node.network.listener import Listener
from ottla.node.network.server import server_driver
from ottla.node.network.tls.served_tls_driver import ServedTls
from ottla.rpc.caller import Caller
from ottla.rpc.method import MethodHandler, RpcMethod
from ottla.rpc.rpc_driver import RpcRuntime, open_rpc_runtime
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.wire.apis import API_VERSIONS
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse

LARGE = 3_000_000
ECHO = RpcMethod("/ottla.Test/Echo", StringValue, StringValue, request_bytes_max=2 * LARGE)
API_VERSIONS_FRAME = struct.pack(">ihhih", 10, API_VERSIONS, 0, 7, -1)
ANSWER = struct.pack(">ii", 10, 7)
"""Length and correlation id of the answer: an error code and an empty list follow."""


class Front(NamedTuple):
    """An open front, its port and what it has seen."""

    server: FrontServer
    port: int
    callers: list[Caller]
    errors: UnexpectedErrors
    rpc: RpcRuntime

    async def echo(self, text: str, tls: TlsConfig | None = None) -> str:
        async with open_rpc_runtime(tls) as rpc:
            channel = await rpc.channel(f"127.0.0.1:{self.port}")
            answer = await channel.call(ECHO, StringValue(value=text), deadline_ms=60_000)
            return answer.value


def answer_versions(context: RequestContext, request: ApiVersionsRequest) -> HandlerResult:
    return ApiVersionsResponse()


@asynccontextmanager
async def front_of(
    tls: TlsConfig | None = None,
    gate: trio.Event | None = None,
    admission: ConnectionQuotas | None = None,
) -> AsyncIterator[Front]:
    callers: list[Caller] = []
    errors = UnexpectedErrors()

    async def answer(request: StringValue) -> StringValue:
        if gate is not None:
            await gate.wait()
        return request

    def admit(path: str, request: Message, caller: Caller) -> None:
        callers.append(caller)

    served = None if tls is None else ServedTls("SSL", tls, failure_delay_ms=0)
    listener = Listener(name="CONTROLLER", host="127.0.0.1", port=0, tls=served)
    service = ListenerService(listener, [MethodHandler(ECHO, answer, admit=admit)], tls)
    dispatcher = Dispatcher({API_VERSIONS: answer_versions}, errors=errors)
    async with (
        open_rpc_runtime() as rpc,
        open_front(
            [service],
            dispatcher,
            rpc=rpc,
            clock=RealClock(),
            disk=RealDisk(),
            admission=admission,
        ) as server,
    ):
        assert isinstance(server, FrontServer)
        _, port = server.addresses["CONTROLLER"]
        yield Front(server, port, callers, errors, rpc)
        assert not errors.counts


async def ask_as_client(port: int, context: ssl.SSLContext | None = None) -> bytes:
    """Send one request of Kafka's protocol, and return the start of the answer."""
    stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", port)
    if context is not None:
        stream = trio.SSLStream(stream, context, server_hostname="127.0.0.1", https_compatible=True)
    async with stream:
        # One byte at a time: the front must wait until it can decide.
        for byte in API_VERSIONS_FRAME:
            await stream.send_all(bytes([byte]))
        return await read_exactly(stream, len(ANSWER))


async def read_exactly(stream: trio.abc.ReceiveStream, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := await stream.receive_some(count - len(data))):
        data += more
    return data


async def is_closed(stream: trio.SocketStream) -> bool:
    async with stream:
        try:
            return await stream.receive_some(1) == b""
        except trio.BrokenResourceError:
            return True


def tls_of(folder: Path, ca: trustme.CA, name: str) -> TlsConfig:
    """Return the TLS settings of a node with a certificate for 127.0.0.1."""
    issued = ca.issue_cert("127.0.0.1", common_name=name)
    chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
    own, trusted = folder / f"{name}.pem", folder / "trusted.pem"
    own.write_bytes(issued.private_key_pem.bytes() + chain)
    own.chmod(0o600)
    trusted.write_bytes(ca.cert_pem.bytes())
    texts = {"ssl.keystore.location": str(own), "ssl.truststore.location": str(trusted)}
    return node_tls_of(texts, [ListenAddress("CONTROLLER", "", 0, "SSL")])["CONTROLLER"]


async def test_nodes_and_clients_share_a_port() -> None:
    async with front_of() as front:
        assert await ask_as_client(front.port) == ANSWER
        assert await front.echo("otter") == "otter"
        assert await ask_as_client(front.port) == ANSWER


async def test_both_have_tls_of_their_own(tmp_path: Path) -> None:
    ca = trustme.CA()
    tls = tls_of(tmp_path, ca, "controller")
    async with front_of(tls) as front:
        assert await front.echo("otter", tls_of(tmp_path, ca, "broker")) == "otter"
        context = ssl.create_default_context()
        ca.configure_trust(context)
        ca.issue_cert("127.0.0.1", common_name="admin").configure_cert(context)
        assert await ask_as_client(front.port, context) == ANSWER
    (caller,) = front.callers
    assert caller.is_authenticated, "gRPC has seen the node's own certificate"
    assert caller.principal.startswith("User:CN=broker,")
    assert caller.host == "127.0.0.1", "the address of the node, not of the socket behind the front"


async def test_large_messages_pass_in_both_directions() -> None:
    text = "x" * LARGE
    async with front_of() as front:
        assert await front.echo(text) == text


async def test_a_silent_connection_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_driver, "FIRST_BYTES_MS_MAX", 50)
    async with front_of() as front:
        silent = await trio.open_tcp_stream("127.0.0.1", front.port)
        hesitant = await trio.open_tcp_stream("127.0.0.1", front.port)
        await hesitant.send_all(b"PRI * HT")
        with trio.fail_after(60):
            assert await is_closed(silent)
            assert await is_closed(hesitant)
        assert front.server.metrics["network.connections.undecided"] == 0
        assert await front.echo("otter") == "otter"


async def test_a_connection_that_ends_early_leaves_nothing() -> None:
    async with front_of() as front:
        for start in (b"", b"PRI", b"PRI * HTTP/2.0\r\n", b"\0\0"):
            stream = await trio.open_tcp_stream("127.0.0.1", front.port)
            await stream.send_all(start)
            await stream.aclose()
        # A reset in place of an orderly end.
        broken = socket.create_connection(("127.0.0.1", front.port))
        broken.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        broken.close()
        with trio.fail_after(60):
            while (
                front.server.metrics["network.connections.undecided"]
                or (front.server.metrics["network.connections.nodes"])
            ):
                await trio.sleep(0.01)


async def test_a_node_that_ends_is_noticed_by_grpc() -> None:
    # The controller takes the end of a broker's open call as a sign that the broker has died.
    gate = trio.Event()
    async with front_of(gate=gate) as front, trio.open_nursery() as nursery:
        nursery.start_soon(front.echo, "waits")
        while not front.callers:
            await trio.sleep(0.01)
        assert front.server.metrics["network.connections.nodes"] == 1
        nursery.cancel_scope.cancel()
    assert not front.errors.counts


async def test_a_node_that_reads_nothing_holds_few_bytes() -> None:
    # It sends valid HTTP/2 and never reads what gRPC answers.
    async with front_of() as front:
        stream = await trio.open_tcp_stream("127.0.0.1", front.port)
        await stream.send_all(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        )
        ping = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b"otterlog"
        with trio.move_on_after(1):
            while True:
                await stream.send_all(ping * 4_096)
        left = [
            len(one.outbound.left) + len(one.inbound.left)
            for one, _ in front.server._spliced.values()
        ]
        assert all(count <= 2 * 65_536 for count in left)
        assert await front.echo("otter") == "otter"
        await stream.aclose()


async def test_idle_strangers_replace_each_other_and_no_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front_driver, "NEWCOMERS_MAX", 20)
    async with front_of() as front:
        idle = [await trio.open_tcp_stream("127.0.0.1", front.port) for _ in range(60)]
        assert await front.echo("otter") == "otter"
        assert front.server.metrics["network.connections.undecided"] <= 20
        assert front.server.replaced_count >= 40
        for stream in idle:
            await stream.aclose()


async def test_the_bounds_of_clients_leave_nodes_alone() -> None:
    bounds = ConnectionBounds(count_max=1)
    admission = ConnectionQuotas(
        WindowShape(), listeners=["CONTROLLER"], inter_broker="", bounds=bounds
    )
    async with front_of(admission=admission) as front:
        first = await trio.open_tcp_stream("127.0.0.1", front.port)
        await first.send_all(API_VERSIONS_FRAME)
        assert await read_exactly(first, len(ANSWER)) == ANSWER
        second = await trio.open_tcp_stream("127.0.0.1", front.port)
        await second.send_all(API_VERSIONS_FRAME)
        assert await is_closed(second)
        assert await front.echo("otter") == "otter"
        families = {one.name: list(one.samples) for one in front_families(front.server.metrics)}
        assert (("clients",), 1) in families["ottla_controller_connections"]
        await first.aclose()
        with trio.fail_after(60):
            while front.server.connection_count:
                await trio.sleep(0.01)
        assert await ask_as_client(front.port) == ANSWER


@pytest.mark.interpreted_only("sets a constant")
async def test_a_crowd_of_nodes_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each turn of the loop connects few of them, and all are served.
    monkeypatch.setattr(server_driver, "TURN_NS_MAX", 300_000)
    async with front_of() as front, AsyncExitStack() as stack:
        crowd = []
        for _ in range(100):
            stream = await trio.open_tcp_stream("127.0.0.1", front.port)
            crowd.append(await stack.enter_async_context(stream))
        for stream in crowd:
            await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
        with trio.fail_after(60):
            for stream in crowd:
                # The frame of gRPC's own settings: a length, and the type 4.
                assert (await read_exactly(stream, 9))[3] == 4
        assert front.server.metrics["network.connections.nodes"] == 100


async def test_overdue_connections_are_closed_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front_driver, "FIRST_BYTES_MS_MAX", 50)
    monkeypatch.setattr(front_driver, "CLOSED_AT_ONCE_MAX", 2)
    async with front_of() as front:
        silent = [await trio.open_tcp_stream("127.0.0.1", front.port) for _ in range(11)]
        with trio.fail_after(60):
            for stream in silent:
                assert await is_closed(stream)


async def test_a_port_in_use_is_refused_with_a_sentence() -> None:
    async with front_of() as front, open_rpc_runtime() as rpc:
        listener = Listener(name="CONTROLLER", host="127.0.0.1", port=front.port)
        service = ListenerService(listener, [], None)
        with pytest.raises(ConfigError, match="cannot be opened"):
            async with open_front(
                [service], Dispatcher(), rpc=rpc, clock=RealClock(), disk=RealDisk()
            ):
                pass


async def test_a_node_waits_for_a_stopped_controller_no_longer_than_for_a_closed_port() -> None:
    async with open_rpc_runtime() as rpc, front_of() as front:
        channel = await rpc.channel(f"127.0.0.1:{front.port}")
        await channel.call(ECHO, StringValue(value="otter"), deadline_ms=60_000)
        await front.rpc.stop_serving()
        with pytest.raises(RefusedError) as refused:
            await channel.call(ECHO, StringValue(value="otter"), deadline_ms=60_000)
        assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
