"""Nodes that show each other certificates, over real loopback sockets."""

import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
import trio
import trustme
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue

from ottla.model.errors import ConfigError, ErrorCode, RefusedError, only_error
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.security.node_tls import node_tls_of
from ottla.model.settings.security.tls import TlsConfig
from ottla.rpc.caller import Caller
from ottla.rpc.method import MethodHandler, RpcMethod
from ottla.rpc.node_certificates_driver import NodeCertificates
from ottla.rpc.rpc_driver import open_rpc_runtime

ECHO = RpcMethod("/ottla.Test/Echo", StringValue, StringValue)
NODES = [ListenAddress("CONTROLLER", "", 0, "SSL")]


class Node(NamedTuple):
    """One node's files."""

    own: Path
    trusted: Path

    @property
    def tls(self) -> TlsConfig:
        texts = {
            "ssl.keystore.location": str(self.own),
            "ssl.truststore.location": str(self.trusted),
        }
        return node_tls_of(texts, NODES)["CONTROLLER"]

    def write(self, ca: trustme.CA, certificate: trustme.LeafCert) -> None:
        chain = b"".join(one.bytes() for one in certificate.cert_chain_pems)
        self.own.write_bytes(certificate.private_key_pem.bytes() + chain)
        self.own.chmod(0o600)
        self.trusted.write_bytes(ca.cert_pem.bytes())


MakeNode = Callable[..., Node]


@pytest.fixture
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def node(tmp_path: Path, ca: trustme.CA) -> MakeNode:
    def make(name: str, *names: str, by: trustme.CA = ca, trusts: trustme.CA = ca) -> Node:
        made = Node(tmp_path / f"{name}.pem", tmp_path / f"{name}-ca.pem")
        made.write(trusts, by.issue_cert(*(names or ("127.0.0.1",)), common_name=name))
        return made

    return make


def echo_to(callers: list[Caller]) -> MethodHandler[StringValue, StringValue]:
    async def answer(request: StringValue) -> StringValue:
        return request

    def admit(path: str, request: Message, caller: Caller) -> None:
        callers.append(caller)

    return MethodHandler(ECHO, answer, admit=admit)


async def call(server: Node | None, client: Node | None) -> list[Caller]:
    """Call a server; return the caller's identity as the server saw it."""
    callers: list[Caller] = []
    async with (
        open_rpc_runtime() as serving,
        open_rpc_runtime(None if client is None else client.tls) as calling,
    ):
        tls = None if server is None else server.tls
        port = await serving.serve("127.0.0.1", 0, [echo_to(callers)], tls=tls)
        channel = await calling.channel(f"127.0.0.1:{port}")
        await channel.call(ECHO, StringValue(value="otter"), deadline_ms=60_000)
    return callers


async def test_a_caller_is_known_by_its_certificate(node: MakeNode) -> None:
    (caller,) = await call(node("server"), node("b4", "b4.example"))
    assert caller.is_authenticated
    assert caller.principal.startswith("User:CN=b4,")
    assert caller.names == {"b4.example"}
    assert caller.host == "127.0.0.1"


async def refusal_of(server: Node | None, client: Node | None) -> str:
    """Call a server that is not reached; return the sentence that a log gets."""
    with pytest.RaisesGroup(RefusedError, flatten_subgroups=True) as caught:
        await call(server, client)
    refusal = only_error(caught.value)
    assert isinstance(refusal, RefusedError)
    assert refusal.code is ErrorCode.NETWORK_EXCEPTION
    return refusal.message or ""


def credentials_of_trust_alone(certificates: NodeCertificates) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(certificates.material.trusted.encode())


async def test_strangers_that_say_nothing_keep_no_node_out(node: MakeNode) -> None:
    connections_max = 8
    async with (
        open_rpc_runtime(connections_max=connections_max) as serving,
        open_rpc_runtime(node("b4").tls) as calling,
        AsyncExitStack() as strangers,
    ):
        port = await serving.serve("127.0.0.1", 0, [echo_to([])], tls=node("server").tls)
        for _ in range(connections_max):
            stranger = await trio.open_tcp_stream("127.0.0.1", port)
            await strangers.enter_async_context(stranger)
            await stranger.send_all(b"\x16\3\1")
        channel = await calling.channel(f"127.0.0.1:{port}")
        with trio.fail_after(60):
            while True:
                with suppress(RefusedError):
                    await channel.call(ECHO, StringValue(value="otter"), deadline_ms=60_000)
                    break


@pytest.mark.parametrize("stranger", ["no certificate", "another CA", "no TLS"])
async def test_a_stranger_reaches_no_method(
    stranger: str, node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = node("server"), None if stranger == "no TLS" else node("client")
    if stranger == "another CA":
        client = node("client", by=trustme.CA())
    if stranger == "no certificate":
        monkeypatch.setattr(NodeCertificates, "channel_credentials", credentials_of_trust_alone)
    assert "the other side closed the connection" in await refusal_of(server, client)


async def test_a_node_calls_no_impostor(node: MakeNode) -> None:
    client = node("client")
    assert "not trusted" in await refusal_of(node("s1", by=trustme.CA()), client)
    assert "other hosts" in await refusal_of(node("s2", "else.example"), client)
    assert "no TLS" in await refusal_of(None, client)


async def test_certificates_are_replaced_without_a_failed_call(
    node: MakeNode, ca: trustme.CA
) -> None:
    """Both sides change their CA, in the order that an operator follows: trust first."""
    new_ca = trustme.CA()
    server, client = node("server"), node("client")
    callers: list[Caller] = []
    async with open_rpc_runtime() as serving, open_rpc_runtime(client.tls) as calling:
        port = await serving.serve("127.0.0.1", 0, [echo_to(callers)], tls=server.tls)
        channel = await calling.channel(f"127.0.0.1:{port}")

        async def call_until(name: str) -> None:
            with trio.fail_after(120):
                while not callers or not callers[-1].principal.startswith(f"User:CN={name},"):
                    await channel.call(ECHO, StringValue(value="otter"), deadline_ms=60_000)

        await call_until("client")
        for one in (server, client):
            one.trusted.write_bytes(ca.cert_pem.bytes() + new_ca.cert_pem.bytes())
        for one in (server, client):
            own = new_ca.issue_cert("127.0.0.1", common_name=f"new-{one.own.stem}")
            chain = b"".join(pem.bytes() for pem in own.cert_chain_pems)
            one.own.write_bytes(own.private_key_pem.bytes() + chain)
        await call_until("new-client")


def test_a_changed_file_that_cannot_be_taken_leaves_the_certificate_of_before(
    node: MakeNode, ca: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 0.0
    one = node("server")
    certificates = NodeCertificates(one.tls, now_s=lambda: now_s)
    before = certificates.material
    one.own.write_text("no certificate")
    for later_s in (0.5, 1.5, 3.0):
        now_s = later_s
        assert certificates.look() == 0
    assert certificates.material == before
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    one.write(ca, ca.issue_cert("127.0.0.1"))
    now_s = 5.0
    assert certificates.look() == 1
    assert certificates.material != before


def keystore(key: str, value: str) -> dict[str, str]:
    return {f"listener.name.controller.ssl.{key}": value}


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (keystore("enabled.protocols", "TLSv1.3"), "leaves a version out"),
        (
            keystore("cipher.suites", "ECDHE-RSA-AES128-GCM-SHA256"),
            "gRPC between nodes chooses suites",
        ),
        (keystore("endpoint.identification.algorithm", ""), "always checks names"),
        (keystore("key.password", "x"), "reads no encrypted key"),
        (keystore("keystore.location", "/missing.pem"), "is /missing.pem, which cannot be read"),
    ],
)
def test_what_grpc_cannot_honour_is_refused(
    node: MakeNode, texts: dict[str, str], sentence: str
) -> None:
    one = node("server")
    given = {
        "listener.name.controller.ssl.keystore.location": str(one.own),
        "listener.name.controller.ssl.truststore.location": str(one.trusted),
        **texts,
    }
    with pytest.raises(ConfigError, match=sentence) as caught:
        NodeCertificates(node_tls_of(given, NODES)["CONTROLLER"])
    assert str(caught.value).startswith(f"{next(iter(texts))}: ")


def test_a_key_that_every_user_may_read_is_refused(node: MakeNode) -> None:
    one = node("server")
    one.own.chmod(0o644)
    with pytest.raises(ConfigError, match=r"every user of this machine can read"):
        NodeCertificates(one.tls)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda text: text.replace("PRIVATE KEY", "PUBLIC KEY"), "has no private key"),
        (lambda text: text.partition("-----BEGIN CERT")[0], "has no certificate"),
        (lambda text: text.replace("EC PRIVATE", "ENCRYPTED PRIVATE"), "an encrypted private key"),
    ],
)
def test_a_file_without_one_key_and_a_certificate_is_refused(
    node: MakeNode, edit: Callable[[str], str], sentence: str
) -> None:
    one = node("server")
    text = one.own.read_text()
    one.own.write_text(edit(text))
    with pytest.raises(ConfigError, match=sentence):
        NodeCertificates(one.tls)


async def test_a_brokers_tls_listener_is_said_to_be_no_controllers(node: MakeNode) -> None:
    """It is trusted, and has TLS, but no HTTP/2 within."""
    broker = node("b1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(broker.own)

    async def hang_up(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.receive_some()
        await stream.aclose()

    async with open_rpc_runtime(node("b2").tls) as runtime, trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        encrypting = [trio.SSLListener(listener, context)]
        nursery.start_soon(trio.serve_listeners, hang_up, encrypting)
        port = listener.socket.getsockname()[1]
        channel = await runtime.channel(f"127.0.0.1:{port}")
        with trio.fail_after(60), pytest.raises(RefusedError) as caught:
            await channel.call(ECHO, StringValue(), deadline_ms=60_000)
        nursery.cancel_scope.cancel()
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    assert caught.value.message == (
        "failed to connect: no gRPC is spoken there; what listens there is no controller "
        "(is it a broker's address?)"
    )
