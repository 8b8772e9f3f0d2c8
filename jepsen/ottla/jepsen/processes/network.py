"""The network of a cluster: the addresses of nodes, and the faults of their links.

Two classes implement one protocol. In `network_namespaces` the kernel drops packets; in
`network_proxies` connections go through the test harness. A cut is silent: the nodes that it
affects receive neither data nor an error. Invariant: links that no active fault names are not
affected.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from ottla.jepsen.processes.network_links import CLIENTS, LinkFault, Links, cut, isolate, lossy
from ottla.jepsen.processes.network_links import slow as slow_fault

LOSS_SHARE = 0.2
"""Default fraction of packets that a fault loses. TCP works with this loss, but slowly. Losing half
of all packets would have the same effect as a cut."""

SLOW_BITS_PER_S = 1_000_000
"""Default bit rate of slow network links, in bits per second: enough for heartbeats and metadata,
not for the load."""


@dataclass(frozen=True, slots=True)
class NodeEndpoint:
    """Network address of one node: the address at which it listens, the address that it advertises,
    and a command prefix that starts a process on the node's network."""

    binds: str
    """host:port at which the node itself listens for connections."""
    advertised: str
    """host:port at which clients and other nodes reach this node."""
    command_prefix: tuple[str, ...] = ()
    """First words of the node's command, which run the node in its network namespace. Empty without
    namespaces."""


class Network(Protocol):
    """Interface of a cluster's network, to which faults are applied. `links` contains the active
    faults."""

    links: Links
    endpoints: Mapping[str, NodeEndpoint]
    harness_host: str
    """Address of this machine at which nodes reach servers of the harness."""
    find_pid: Callable[[str], int | None]
    """Function that returns the current process id of a node, by the node's name. Returns None if
    the node has no process. Set by the cluster."""

    async def apply(self) -> None:
        """Apply the active faults in `links` to the nodes' connections, and end faults that are
        no longer in `links`."""

    async def reset(self, nodes: Iterable[str]) -> int:
        """Reset every TCP connection of `nodes`. Returns the number of connections."""


NetworkManager = AbstractAsyncContextManager[Network]


class NetworkFaults:
    """Methods to inject and remove the faults of a cluster's network, for nemeses."""

    def __init__(self, network: Network) -> None:
        self._network = network

    @property
    def is_well(self) -> bool:
        """True if no fault of the cluster's network is active."""
        return self._network.links.is_well

    async def put(self, name: str, fault: LinkFault) -> None:
        """Activate a network fault under a unique name."""
        self._network.links.put(name, fault)
        await self._network.apply()

    async def lift(self, name: str) -> None:
        """Remove the network fault with the name `name`."""
        self._network.links.lift(name)
        await self._network.apply()

    async def heal_all(self) -> None:
        """Remove all network faults."""
        self._network.links.lift_all()
        await self._network.apply()

    async def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Cut the link between two nodes, or between a node and `CLIENTS`. With `one_way`, only
        data from `a` to `b` is lost."""
        await self.put(f"cut {a} {b} {one_way}", cut(a, b, one_way=one_way))

    async def isolate(self, node: str, *, clients: bool = False) -> None:
        """Cut a node off from all other nodes. With `clients`, cut it off from clients as well."""
        await self.put(f"isolate {node}", isolate(node, self._network.links.nodes, clients=clients))

    async def loss(self, nodes: Iterable[str], share: float = LOSS_SHARE) -> None:
        """Lose a fraction (`share`) of all packets that the nodes send and receive."""
        ends = (*self._network.links.nodes, CLIENTS)
        await self.put("loss", lossy(nodes, ends, share))

    async def slow(self, nodes: Iterable[str], bits_per_s: int = SLOW_BITS_PER_S) -> None:
        """Limit the bit rate to and from the nodes to `bits_per_s`."""
        await self.put("slow", slow_fault(nodes, bits_per_s))

    async def reset(self, nodes: Iterable[str]) -> int:
        """Reset every TCP connection of `nodes`. Returns the number of connections."""
        return await self._network.reset(nodes)
