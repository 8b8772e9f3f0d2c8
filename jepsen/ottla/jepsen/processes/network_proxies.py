"""A network for users without root: nodes on loopback, each behind a proxy of the test harness.

Nodes and clients know only the proxies' addresses. So all their bytes pass through the proxies, and
wait there while a link is cut. The kernel names the process that owns a socket, which identifies
the opener of a connection. There are three differences from a real network:

- a connection can be opened through a cut, but gets no response;
- a lost packet is a pause of the length of its retransmission;
- bytes that a cut has held back arrive at once when it heals.
"""

import math
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import trio

from ottla.jepsen.processes.cluster_claim import MachineClaim
from ottla.jepsen.processes.network import NodeEndpoint
from ottla.jepsen.processes.network_links import CLIENTS, CUT, Links

HOST = "127.0.0.1"
FIRST_PORT = 20_000
"""First port of the proxies, below the ephemeral ports of the kernel (32768 and up)."""
PORTS_A_RUN = 40
"""Number of ports that each run reserves, two for each node. With 250 runs the last port is 30000.
"""

PACKET_BYTES = 16_384
"""Maximum number of bytes that a proxy reads at once. A simulated packet loss delays this many
bytes."""
REPEATED_AFTER_S = 0.2
"""Delay in seconds of the first simulated retransmission, which is TCP's shortest timeout. It
doubles with each further loss."""
REPEATS_MAX = 6
SOCKET_TABLES = {
    "/proc/net/tcp": "0100007F",
    # gRPC uses IPv4 through dual-stack sockets.
    "/proc/net/tcp6": "0000000000000000FFFF00000100007F",
}
"""Paths of the kernel's lists of TCP sockets, each with its notation of the address 127.0.0.1."""
LINGER_NOT = struct.pack("ii", 1, 0)
"""Value of the socket option SO_LINGER that makes closing a socket reset its connection."""


class Relay:
    """One TCP connection through a proxy: the socket of its opener, the socket to the node, and the
    bytes between them."""

    def __init__(self, opener: str, node: str, ends: Sequence[trio.SocketStream]) -> None:
        self.opener = opener
        self.node = node
        self.ends = ends

    def reset(self) -> None:
        """Reset both sockets of the relayed connection."""
        for end in self.ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            end.socket.close()


class ProxyNetwork:
    """The proxies of one run. This object owns the proxies' listeners and connections."""

    def __init__(self, claim: MachineClaim, nodes: Sequence[str]) -> None:
        self.links = Links(nodes)
        self.harness_host = HOST
        self.find_pid: Callable[[str], int | None] = lambda _node: None
        """Function that returns the current process id of a node, by the node's name. Returns None
        if the node has no process. Set by the cluster."""
        first = FIRST_PORT + PORTS_A_RUN * claim.number
        assert 2 * len(nodes) <= PORTS_A_RUN
        self._ports = {node: first + 2 * at for at, node in enumerate(nodes)}
        self.endpoints: Mapping[str, NodeEndpoint] = {
            node: NodeEndpoint(f"{HOST}:{port + 1}", f"{HOST}:{port}")
            for node, port in self._ports.items()
        }
        self._relays: set[Relay] = set()
        self._changed = trio.Event()
        self._free_at_s: dict[tuple[str, str], float] = {}
        """Time in seconds at which a node's slow link will have sent all bytes passed to it, by
        (node, direction)."""
        self._dice = random.Random()

    async def apply(self) -> None:
        """Wake all waiting relays (proxied connections). Each then applies the changed faults."""
        self._changed.set()
        self._changed = trio.Event()

    async def reset(self, nodes: Iterable[str]) -> int:
        """Reset every TCP connection from and to `nodes`. Returns the number of connections."""
        wanted = set(nodes)
        hit = [relay for relay in self._relays if {relay.opener, relay.node} & wanted]
        for relay in hit:
            relay.reset()
        return len(hit)

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        """Run the proxies of all nodes, until cancelled."""
        async with trio.open_nursery() as nursery:
            for node, port in self._ports.items():
                listeners = await trio.open_tcp_listeners(port, host=HOST)
                handler = partial(self._relay, node)
                nursery.start_soon(trio.serve_listeners, handler, listeners)
            task_status.started()

    async def _relay(self, node: str, near: trio.SocketStream) -> None:
        """Relay one TCP connection to a node while both ends are open. `near` is the socket of its
        opener."""
        async with near:
            try:
                opener = self._owner(near.socket.getpeername()[1], self._ports[node])
            except OSError:
                return  # it was reset before it was accepted
            # The first packet does not pass a cut, either.
            await self._pass(opener, node, 1)
            try:
                far = await trio.open_tcp_stream(HOST, self._ports[node] + 1)
            except OSError:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
                return
            relay = Relay(opener, node, (near, far))
            self._relays.add(relay)
            try:
                async with far, trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, relay, near, far, opener, node)
                    nursery.start_soon(self._pump, relay, far, near, node, opener)
            finally:
                self._relays.discard(relay)

    async def _pump(
        self,
        relay: Relay,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        sender: str,
        receiver: str,
    ) -> None:
        try:
            while data := await source.receive_some(PACKET_BYTES):
                await self._pass(sender, receiver, len(data))
                await sink.send_all(data)
            await self._pass(sender, receiver, 1)
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            await self._pass(sender, receiver, 1)
            relay.reset()

    async def _pass(self, sender: str, receiver: str, count: int) -> None:
        """Wait until `count` bytes may pass the link from `sender` to `receiver`."""
        for repeat in range(REPEATS_MAX):
            while (share := self.links.lost(sender, receiver)) >= CUT:
                await self._changed.wait()
            if self._dice.random() >= share:
                break
            await trio.sleep(REPEATED_AFTER_S * 2**repeat)
        for bound in ((sender, "out"), (receiver, "in")):
            rate = None if bound[0] == CLIENTS else self.links.rate_of(bound[0])
            if rate is not None:
                begins_s = max(trio.current_time(), self._free_at_s.get(bound, -math.inf))
                self._free_at_s[bound] = begins_s + 8 * count / rate
                await trio.sleep_until(self._free_at_s[bound])

    def _owner(self, port: int, remote_port: int) -> str:
        """Return the name of the node that owns the socket between two ports, or CLIENTS if no node
        owns it."""
        inode = _inode_of(port, remote_port)
        if inode is not None:
            for node in self.links.nodes:
                pid = self.find_pid(node)
                if pid is not None and _has_socket(pid, inode):
                    return node
        return CLIENTS


@asynccontextmanager
async def open_proxies(claim: MachineClaim, nodes: Sequence[str]) -> AsyncIterator[ProxyNetwork]:
    """Run the proxies for the duration of the `async with` block. Yields the network that they
    form. Raises OSError if a port is in use."""
    network = ProxyNetwork(claim, nodes)
    async with trio.open_nursery() as nursery:
        await nursery.start(network.serve)
        yield network
        nursery.cancel_scope.cancel()


def _inode_of(port: int, remote_port: int) -> str | None:
    """Return the inode number of the socket that is bound to one loopback port and connected to
    another."""
    for path, address in SOCKET_TABLES.items():
        # The local port alone is ambiguous: connections to several places may share it.
        ends = [f"{address}:{port:04X}", f"{address}:{remote_port:04X}"]
        for line in Path(path).read_text().splitlines()[1:]:
            words = line.split()
            if words[1:3] == ends:
                return words[9]
    return None


def _has_socket(pid: int, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if str(descriptor.readlink()) == wanted:
                    return True
    return False
