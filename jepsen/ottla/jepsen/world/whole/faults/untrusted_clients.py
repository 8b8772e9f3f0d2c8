"""Clients that brokers must refuse, certificates that change, and checks of the brokers' behaviour
meanwhile.

Invariants:

- StrangersAreRefused: a client gets no response if it trusts another CA, presents a certificate of
  another CA or an expired one, expects another name, or does not use TLS;
- HandshakesEnd: a handshake without progress ends at its deadline;
- NewCertificateServed: a certificate whose setting was acknowledged is presented on the next
  connections, and at the end;
- the invariants of `encryption.py`.
"""

import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

import trio

from ottla.client.admin import open_admin
from ottla.client.network.connection import ConnectionLostError, open_connection
from ottla.client.network.tls import TLS, TlsDialer, TlsError
from ottla.client.network.transport import TRANSPORT
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import BROKER_PORT, SimulatedCluster
from ottla.jepsen.world.whole.encryption import STRANGER, WatchedStream
from ottla.jepsen.world.whole.faults.cluster_faults import ClusterFaults, FaultContext
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.net.server import MachineServer
from ottla.jepsen.world.whole.net.streams import MachineTransport
from ottla.jepsen.world.whole.workload import TROUBLE
from ottla.model.ids import NodeId
from ottla.model.settings.security.tls import NONE
from ottla.node.network.tls.handshakes import HANDSHAKE_MS_MAX
from ottla.wire.apis import HEARTBEAT
from ottla.wire.codec import encode
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.heartbeat_request import HeartbeatRequest

PATIENCE_S = 10.0
LATE_MS = 1_000
"""Tolerance in ms beyond a TLS handshake's deadline, for a paused process or a long event-loop
iteration."""

LOOK_S = 0.5
GONE = (OSError, ssl.SSLError, trio.BrokenResourceError, trio.ClosedResourceError)


def heartbeat(correlation_id: int) -> bytes:
    """Return the frame of a Heartbeat request, with which a test client checks whether a broker
    responds."""
    body = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
    frame = encode_request_header(HEARTBEAT, 3, correlation_id, "t") + body
    return struct.pack(">i", len(frame)) + frame


class EncryptedTrouble(ClusterFaults):
    """Base class of faults that require encrypted listeners."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        encryption = context.cluster.world.encryption
        assert encryption is not None
        self._encryption = encryption


class UntrustedClients(EncryptedTrouble):
    """Faults in which clients connect to brokers that must refuse them."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._silent: list[object] = []
        """Streams of clients that send nothing more, kept so that their connections stay open."""
        world = context.cluster.world
        host = world.network.host(STRANGER)
        world.network.on_start(host)
        self._transport = MachineTransport(world.network, world.ports, host)

    async def connect(self) -> None:
        """Connect to a broker as a random kind of client that brokers must refuse."""
        self._counts["strangers"] += 1
        host = self._chance.pick([one.name for one in self._cluster.broker_machines.values()])
        encryption = self._encryption
        ways: list[tuple[str, Callable[[], Awaitable[bool]]]] = [
            ("trusts another CA", lambda: self._ask(host, encryption.misled_dialer())),
            ("expects another name", lambda: self._ask_by_other_name(host)),
            ("speaks no TLS", lambda: self._ask(host, None)),
            ("stops within its handshake", lambda: self._stop(host)),
            ("leaves within its handshake", lambda: self._leave(host)),
            ("sends a forged record", lambda: self._forge(host)),
        ]
        if encryption.client_auth != NONE:
            ways += [
                ("is of another CA", lambda: self._ask(host, encryption.forged_dialer())),
                ("has expired", lambda: self._ask(host, encryption.expired_dialer())),
            ]
        name, way = self._chance.pick(ways)
        with trio.move_on_after(PATIENCE_S), suppress(*GONE):
            if await way():
                raise Violation("StrangersAreRefused", f"one that {name} was served by {host}")
        self._rare.sometimes(f"a stranger {name}")

    async def _ask(self, host: str, dialer: TlsDialer | None) -> bool:
        """Send a request to the broker on `host`. `dialer` opens the TLS connection; None sends in
        plain text. Returns whether the broker responds."""
        TRANSPORT.set(self._transport)
        TLS.set(dialer)
        try:
            async with open_connection(host, BROKER_PORT, timeout_s=PATIENCE_S):
                return True
        except ConnectionLostError:
            return False

    async def _ask_by_other_name(self, host: str) -> bool:
        stream = await self._transport.connect(host, BROKER_PORT)
        try:
            await self._encryption.stranger_dialer().encrypted(stream, f"not-{host}")
        except TlsError:
            return False
        stream.abort()
        return True

    async def _begin(self, host: str) -> tuple[ssl.SSLObject, ssl.MemoryBIO, bytes]:
        """Start a TLS handshake without sending it. Returns the two objects with the state of the
        handshake, and the first bytes to send."""
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = self._encryption.stranger_dialer().context
        tls = context.wrap_bio(received, sent, server_hostname=host)
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        return tls, received, sent.read()

    async def _stop(self, host: str) -> bool:
        """Send a part of the first TLS handshake message to a broker, or all of it, and then
        nothing more. Returns False, because the broker cannot respond."""
        stream = await self._transport.connect(host, BROKER_PORT)
        self._silent.append(stream)
        _, _, words = await self._begin(host)
        await stream.send_all(words[: 1 + self._chance.below(len(words))])
        return False

    async def _leave(self, host: str) -> bool:
        stream = await self._transport.connect(host, BROKER_PORT)
        _, _, words = await self._begin(host)
        await stream.send_all(words[: 1 + self._chance.below(len(words))])
        if self._chance.below(2):
            stream.abort()
        else:
            stream.close_now()
        return False

    async def _forge(self, host: str) -> bool:
        """Send a broker an encrypted request in which one byte was changed. Returns True if the
        broker responds."""
        stream = await self._transport.connect(host, BROKER_PORT)
        try:
            found = WatchedStream(stream, self._encryption.stranger_dialer().context, host)
            found.on_failure = lambda _said: None
            await found.shake_hands()
            record = bytearray(found.sealed(heartbeat(1)))
            record[-1 - self._chance.below(8)] ^= 1
            await stream.send_all(bytes(record))
            return bool(await found.receive_some(1))
        finally:
            stream.abort()


class CertificateChanges(EncryptedTrouble):
    """Faults that change the certificates of running brokers, through the brokers' settings."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._under_way: set[str] = set()

    async def change(self) -> None:
        """Change the certificate of one broker. The broker must present the new certificate on the
        next connections."""
        node, machine = self._chance.pick(list(self._cluster.broker_machines.items()))
        host = machine.name
        if host in self._under_way:
            return
        self._under_way.add(host)
        try:
            with trio.move_on_after(PATIENCE_S):
                await self._change(node, machine)
        except TROUBLE:
            pass
        finally:
            self._under_way.discard(host)

    async def _change(self, node: NodeId, machine: Machine) -> None:
        encryption, host = self._encryption, machine.name
        certificates = encryption.certificates(host)
        offered = certificates.offer()
        self._counts["certificates offered"] += 1
        settings = encryption.dynamic_settings(encryption.certificate(host, offered))
        start_count = machine.start_count
        async with open_admin(self._cluster.bootstrap, timeout_s=PATIENCE_S) as admin:
            await admin.alter_broker_configs(node, settings)
        certificates.acknowledge(offered)
        self._counts["certificates changed"] += 1
        found = await self._shown(host)
        if found is not None and machine.is_running and machine.start_count == start_count:
            certificates.check(host, found)
            self._rare.sometimes("a new certificate is shown")

    async def judge(self) -> None:
        """Check that every broker presents its latest certificate. Raises Violation otherwise."""
        for machine in self._cluster.broker_machines.values():
            found = await self._shown(machine.name)
            if found is None:
                raise Violation("NewCertificateServed", f"{machine.name} shakes no hands")
            self._encryption.certificates(machine.name).check(machine.name, found)

    async def _shown(self, host: str) -> int | None:
        """Return the generation of the certificate that the broker on `host` presents, or None if
        the broker is unreachable."""
        dialer = TLS.get()
        assert dialer is not None
        with trio.move_on_after(PATIENCE_S), suppress(*GONE):
            stream = await TRANSPORT.get().connect(host, BROKER_PORT)
            encrypted = await dialer.encrypted(stream, host)
            assert isinstance(encrypted, WatchedStream)
            try:
                return encrypted.generation
            finally:
                await encrypted.aclose()
        return None


class EncryptionWatch:
    """Invariant check: no TLS handshake at a broker remains unfinished after its deadline."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._late: dict[NodeId, int] = {}
        """Number of consecutive checks that found an overdue TLS handshake, by broker."""

    async def run(self) -> NoReturn:
        """Check at intervals that no TLS handshake at a broker is unfinished after its deadline."""
        while True:
            await trio.sleep(LOOK_S)
            for node, broker in self._cluster.brokers.items():
                machine = self._cluster.broker_machines[node]
                server = broker.server
                assert isinstance(server, MachineServer)
                since_ms = machine.clock.monotonic_ms() - HANDSHAKE_MS_MAX - LATE_MS
                is_late = not machine.is_paused and server.shakes_since(since_ms)
                self._late[node] = self._late.get(node, 0) + 1 if is_late else 0
                if self._late[node] > LATE_MS / 1_000 / LOOK_S:
                    raise Violation("HandshakesEnd", f"broker {node} has one that is overdue")
