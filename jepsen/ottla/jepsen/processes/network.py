"""The network of a cluster: where nodes listen, and what can be done to what they say.

Two kinds keep one promise: `network_namespaces`, where packets are lost in the kernel, and
`network_proxies`, where connections go through us.  A cut is silent: who is cut off hears nothing,
neither an answer nor an error.  Invariant: what is not named by a fault in force is not touched.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from ottla.jepsen.processes.network_links import CLIENTS, LinkFault, Links, cut, isolate, lossy
from ottla.jepsen.processes.network_links import slow as slow_fault

LOSS_SHARE = 0.2
"""TCP lives with this much, but slowly; at half of all packets it is as good as cut."""

SLOW_BITS_PER_S = 1_000_000
"""Enough for heartbeats and metadata, not for the load."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one node lives: what it binds, what others are told, how its command begins."""

    binds: str
    """host:port of the node's own listener."""
    advertised: str
    """host:port by which everybody reaches it."""
    command_prefix: tuple[str, ...] = ()
    """What stands before the node's command, so that it runs in this place."""


class Network(Protocol):
    """What nemeses do to links; `links` says what is in force."""

    links: Links
    seats: Mapping[str, Seat]
    find_pid: Callable[[str], int | None]
    """Who a node is now; set by whoever starts nodes."""

    async def apply(self) -> None:
        """Make the world as `links` says."""

    async def reset(self, nodes: Iterable[str]) -> int:
        """Reset every TCP connection of the nodes; return how many connections were."""


NetworkManager = AbstractAsyncContextManager[Network]


class NetworkFaults:
    """The words in which nemeses speak of a network."""

    def __init__(self, network: Network) -> None:
        self._network = network

    @property
    def is_well(self) -> bool:
        """Whether no fault of the network is in force."""
        return self._network.links.is_well

    async def put(self, name: str, fault: LinkFault) -> None:
        """Put a fault in force under a name of its own."""
        self._network.links.put(name, fault)
        await self._network.apply()

    async def lift(self, name: str) -> None:
        """Heal what the fault of this name did."""
        self._network.links.lift(name)
        await self._network.apply()

    async def heal_all(self) -> None:
        """Heal everything."""
        self._network.links.lift_all()
        await self._network.apply()

    async def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Cut two nodes (or a node and `CLIENTS`); `one_way`: what `a` sends is lost."""
        await self.put(f"cut {a} {b} {one_way}", cut(a, b, one_way=one_way))

    async def isolate(self, node: str, *, clients: bool = False) -> None:
        """Cut a node from all others."""
        await self.put(f"isolate {node}", isolate(node, self._network.links.nodes, clients=clients))

    async def loss(self, nodes: Iterable[str], share: float = LOSS_SHARE) -> None:
        """Lose a share of all that the nodes send and receive."""
        ends = (*self._network.links.nodes, CLIENTS)
        await self.put("loss", lossy(nodes, ends, share))

    async def slow(self, nodes: Iterable[str], bits_per_s: int = SLOW_BITS_PER_S) -> None:
        """Bound what goes to and from the nodes."""
        await self.put("slow", slow_fault(nodes, bits_per_s))

    async def reset(self, nodes: Iterable[str]) -> int:
        """Reset every TCP connection of the nodes."""
        return await self._network.reset(nodes)
