"""Byte streams and servers: sockets and the world's pass the same contract."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from ottla.client.network.tls import TlsDialer, TlsStream
from ottla.client.network.transport import TcpTransport
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.noted_errors import NotedErrors
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.whole.clock import MachineClock
from ottla.jepsen.world.whole.net.network import SimulatedNetwork
from ottla.jepsen.world.whole.net.server import server_opener
from ottla.jepsen.world.whole.net.streams import MachineTransport, Ports, Stream
from ottla.model.seams import Transport
from ottla.model.settings.security.tls import SSL, VERSIONS, TlsConfig
from ottla.node.clock_driver import RealClock
from ottla.node.local.local_nodes_driver import free_port
from ottla.node.network.listener import Listener, ListenerTls
from ottla.node.network.server.server_driver import SocketServer
from ottla.node.network.server.server_opening_driver import open_socket_server
from ottla.node.network.tls.served_tls_driver import ServedTls
from ottla.storage.disk.real_disk_driver import RealDisk
from tests.jepsen.world.transport_conformance import CHECKS, Check, Reach, heartbeat_dispatcher

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

LISTENER = "PLAINTEXT"


class EncryptedTransport:
    """A transport whose connections are encrypted."""

    def __init__(self, below: Transport, dialer: TlsDialer) -> None:
        self._below = below
        self._dialer = dialer

    async def connect(self, host: str, port: int) -> TlsStream:
        return await self._dialer.encrypted(await self._below.connect(host, port), host)


@asynccontextmanager
async def over_sockets(
    tls: ListenerTls | None = None,
    dialer: TlsDialer | None = None,
    users: list[str] | None = None,
    kind: type[SocketServer] = SocketServer,
) -> AsyncIterator[Reach]:
    """Open a server on loopback, with TLS or without."""
    transport: Transport = TcpTransport()
    if dialer is not None:
        transport = EncryptedTransport(transport, dialer)
    is_closing, is_closed = trio.Event(), trio.Event()
    reached: list[Reach] = []

    async def close() -> None:
        is_closing.set()
        await is_closed.wait()

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        async with open_socket_server(
            [Listener(name=LISTENER, host="127.0.0.1", port=0, tls=tls)],
            heartbeat_dispatcher(users=users),
            clock=RealClock(),
            disk=RealDisk(),
            kind=kind,
        ) as server:
            host, port = server.addresses[LISTENER]
            reached.append(
                Reach(transport, host, port, free_port(), lambda: server.connection_count, close)
            )
            task_status.started()
            await is_closing.wait()
        is_closed.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        yield reached[0]
        is_closing.set()


@asynccontextmanager
async def over_memory(
    tls: ListenerTls | None = None,
    dialer: TlsDialer | None = None,
    users: list[str] | None = None,
) -> AsyncIterator[Reach]:
    """Open a server in the world."""
    network = SimulatedNetwork(Chance(1), Trace(), RareStates())
    ports = Ports()
    for name in ("client", "server"):
        network.on_start(network.host(name))
    is_closing, is_closed = trio.Event(), trio.Event()
    reached: list[Reach] = []
    faults: list[BaseException] = []

    async def close() -> None:
        is_closing.set()
        await is_closed.wait()

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        open_server = server_opener(ports)
        async with open_server(
            [Listener(name=LISTENER, host="server", port=9092, tls=tls)],
            heartbeat_dispatcher(NotedErrors(faults.append), users),
            clock=MachineClock(boot_ms=0),
            disk=SimulatedDisk(Chance(2)),
        ) as server:
            transport: Transport = MachineTransport(network, ports, network.host("client"))
            if dialer is not None:
                transport = EncryptedTransport(transport, dialer)
            reached.append(
                Reach(
                    transport,
                    "server",
                    9092,
                    9999,
                    lambda: int(server.metrics["network.connections"]),
                    close,
                )
            )
            task_status.started()
            await is_closing.wait()
        is_closed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(network.run)
        await nursery.start(serve)
        yield reached[0]
        nursery.cancel_scope.cancel()
    assert not faults


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_sockets_keep(check: Check) -> None:
    async with over_sockets() as reach:
        await check(reach)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_encrypted_sockets_keep(
    check: Check, version: str, authority: "CertificateAuthority"
) -> None:
    server = TlsConfig(certificate_location=str(authority.issue()), versions=(version,))
    client = TlsConfig(trust_location=str(authority.file))
    tls = ServedTls(SSL, server, failure_delay_ms=100)
    async with over_sockets(tls, TlsDialer(client)) as reach:
        await check(reach)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_world_keeps(check: Check, autojump_clock: MockClock) -> None:
    async with over_memory() as reach:
        await check(reach)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_encrypted_world_keeps(
    check: Check, version: str, authority: "CertificateAuthority", autojump_clock: MockClock
) -> None:
    server = TlsConfig(certificate_location=str(authority.issue("server")), versions=(version,))
    tls = ServedTls(SSL, server, failure_delay_ms=100)
    async with over_memory(tls, TlsDialer(TlsConfig(trust_location=str(authority.file)))) as reach:
        await check(reach)


class OpenAcceptor:
    """Keeps the other ends of connections."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []

    def on_connect(self, stream: Stream) -> None:
        self.streams.append(stream)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[SimulatedNetwork, Stream, Stream]]:
    """Open one connection from `client` to `server`."""
    network = SimulatedNetwork(Chance(3), Trace(), RareStates())
    ports, acceptor = Ports(), OpenAcceptor()
    ports.open("server", 1, acceptor)
    for name in ("client", "server"):
        network.on_start(network.host(name))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(network.run)
        ours = await MachineTransport(network, ports, network.host("client")).connect("server", 1)
        yield network, ours, acceptor.streams[0]
        nursery.cancel_scope.cancel()


async def test_what_a_cut_link_held_back_arrives_in_its_order(autojump_clock: MockClock) -> None:
    async with connected() as (network, ours, theirs):
        await ours.send_all(b"1")
        network.cut("client", "server")
        for number in b"23456":
            await ours.send_all(bytes([number]))
        await trio.sleep(1)
        before = theirs.take(10)
        network.heal()
        await ours.send_all(b"7")
        await trio.sleep(1)
        assert (before, theirs.take(10)) == (b"1", b"234567")


async def test_a_killed_process_resets_its_connections(autojump_clock: MockClock) -> None:
    async with connected() as (network, ours, _theirs):
        network.on_end(network.host("server"), is_silent=False)
        with pytest.raises(trio.BrokenResourceError):
            await ours.receive_some(10)


async def test_a_machine_without_power_resets_them_when_it_is_back(
    autojump_clock: MockClock,
) -> None:
    async with connected() as (network, ours, _theirs):
        network.on_end(network.host("server"), is_silent=True)
        with trio.move_on_after(60) as patience:
            await ours.receive_some(10)
        network.on_start(network.host("server"))
        with pytest.raises(trio.BrokenResourceError):
            await ours.receive_some(10)
    assert patience.cancelled_caught


async def test_a_connection_that_breaks_is_broken_for_both(autojump_clock: MockClock) -> None:
    async with connected() as (network, ours, theirs):
        network.quality.break_p = 1.0
        await ours.send_all(b"never seen")
        with pytest.raises(trio.BrokenResourceError):
            await ours.send_all(b"x")
        with pytest.raises(trio.BrokenResourceError):
            await theirs.receive_some(10)
