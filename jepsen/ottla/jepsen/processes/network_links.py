"""The state of all links between nodes, which combines all active faults. The module is pure.

Each fault has a name, by which the fault is removed. So if two nemeses cut the same pair of nodes,
healing one cut does not heal the other. A link is directed, from sender to receiver. `CLIENTS`
stands for everything outside the nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

CLIENTS = "clients"
"""Name of the end of the network at which the test harness and all clients are."""

CUT = 1.0
"""Fraction of packets lost on a network link that is cut."""

Link = tuple[str, str]
"""Sender and receiver of a directed network link, each a node name or `CLIENTS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """One fault of the network: fractions of packets lost by link, and slow nodes."""

    lost: Mapping[Link, float] = field(default_factory=dict)
    """Fraction of packets lost on each network link, above 0 and up to 1."""
    rate_bits_per_s: Mapping[str, int] = field(default_factory=dict)
    """Bit rates of slow nodes, in bits per second. The rate limits data to the node and data from
    the node, each separately."""


class Links:
    """All network links between nodes and clients, with the active faults."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self.nodes = tuple(nodes)
        self._faults: dict[str, LinkFault] = {}

    @property
    def is_well(self) -> bool:
        """True if no network fault is active."""
        return not self._faults

    def put(self, name: str, fault: LinkFault) -> None:
        """Activate a network fault under a name. It replaces a fault with the same name."""
        ends = {*self.nodes, CLIENTS}
        for sender, receiver in fault.lost:
            assert sender != receiver
            assert {sender, receiver} <= ends
        assert set(fault.rate_bits_per_s) <= set(self.nodes)
        self._faults[name] = fault

    def lift(self, name: str) -> None:
        """Remove the network fault with this name, if it is active."""
        self._faults.pop(name, None)

    def lift_all(self) -> None:
        """Remove every active network fault."""
        self._faults.clear()

    def lost(self, sender: str, receiver: str) -> float:
        """Return the fraction of packets lost on the link from `sender` to `receiver`: the largest
        fraction of all active faults."""
        link = (sender, receiver)
        return max((fault.lost.get(link, 0.0) for fault in self._faults.values()), default=0.0)

    def lost_to(self, receiver: str) -> dict[str, float]:
        """Return the fraction of packets lost on each link to `receiver`, by sender. Links without
        losses are left out."""
        senders = (one for one in (*self.nodes, CLIENTS) if one != receiver)
        shares = {sender: self.lost(sender, receiver) for sender in senders}
        return {sender: share for sender, share in shares.items() if share > 0}

    def rate_of(self, node: str) -> int | None:
        """Return the bit rate in bits per second to which a node is limited, or None if there is no
        limit."""
        rates = [
            fault.rate_bits_per_s[node]
            for fault in self._faults.values()
            if node in fault.rate_bits_per_s
        ]
        return min(rates, default=None)


def cut(a: str, b: str, *, one_way: bool = False) -> LinkFault:
    """Return a fault that cuts two nodes off from each other. With `one_way` only data from `a` to
    `b` is lost."""
    return cut_links([(a, b)] if one_way else [(a, b), (b, a)])


def cut_links(links: Iterable[Link]) -> LinkFault:
    """Return a fault that cuts each link in `links`, in one direction."""
    return LinkFault(lost=dict.fromkeys(links, CUT))


def split(groups: Iterable[Iterable[str]]) -> LinkFault:
    """Return a fault that cuts each group of nodes off from all other groups. Clients still reach
    all nodes."""
    parts = [tuple(group) for group in groups]
    return cut_links(
        (sender, receiver)
        for part in parts
        for other in parts
        if part is not other
        for sender in part
        for receiver in other
    )


def isolate(node: str, others: Iterable[str], *, clients: bool = False) -> LinkFault:
    """Return a fault that cuts one node off from the nodes `others`. With `clients`, the fault also
    cuts it off from clients."""
    far = [one for one in others if one != node] + ([CLIENTS] if clients else [])
    return cut_links(link for one in far for link in ((node, one), (one, node)))


def lossy(nodes: Iterable[str], ends: Iterable[str], share: float) -> LinkFault:
    """Return a fault that loses a fraction (`share`) of the packets between `nodes` and all `ends`,
    in both directions."""
    assert 0 < share <= 1
    ends = tuple(ends)
    pairs = [(node, end) for node in nodes for end in ends if node != end]
    return LinkFault(
        lost={link: share for one, other in pairs for link in ((one, other), (other, one))}
    )


def slow(nodes: Iterable[str], bits_per_s: int) -> LinkFault:
    """Return a fault that limits the bit rate to and from each of the nodes to `bits_per_s`."""
    return LinkFault(rate_bits_per_s=dict.fromkeys(nodes, bits_per_s))


def majorities_ring(ring: Sequence[str]) -> LinkFault:
    """Return a fault in which each node of a ring reaches only its nearest nodes. A node and its
    neighbours form a majority, which differs from node to node.

    With three nodes every node is a neighbour of all others, so two nodes are cut off from each
    other instead.
    """
    count = len(ring)
    if count <= 3:
        return cut_links([(ring[0], ring[-1]), (ring[-1], ring[0])] if count == 3 else [])
    reach = next(reach for reach in range(count) if 2 * reach + 1 > count // 2)

    def distance(a: int, b: int) -> int:
        return min((a - b) % count, (b - a) % count)

    return cut_links(
        (ring[a], ring[b]) for a in range(count) for b in range(count) if distance(a, b) > reach
    )
