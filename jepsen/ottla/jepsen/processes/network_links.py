"""What is wrong between which two: the sum of all faults that are in force.  Pure.

A fault has a name, and is lifted by that name: two nemeses that cut the same pair do not heal each
other's cut.  A link is directed, from the one who sends; `CLIENTS` is everybody outside the nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

CLIENTS = "clients"
"""The harness' own end of the network, where all clients are."""

CUT = 1.0
"""The share of packets that do not arrive when none does."""

Link = tuple[str, str]
"""Who sends, who should receive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """One fault of the network: shares of packets lost by link, and slow nodes."""

    lost: Mapping[Link, float] = field(default_factory=dict)
    """From above 0 to 1: the share of packets that do not arrive."""
    rate_bits_per_s: Mapping[str, int] = field(default_factory=dict)
    """What goes to and from a node in a second, each way."""


class Links:
    """All links between nodes and clients; owns the faults in force."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self.nodes = tuple(nodes)
        self._faults: dict[str, LinkFault] = {}

    @property
    def is_well(self) -> bool:
        """Whether no fault is in force."""
        return not self._faults

    def put(self, name: str, fault: LinkFault) -> None:
        """Put a fault in force; one of the same name is replaced."""
        ends = {*self.nodes, CLIENTS}
        for sender, receiver in fault.lost:
            assert sender != receiver
            assert {sender, receiver} <= ends
        assert set(fault.rate_bits_per_s) <= set(self.nodes)
        self._faults[name] = fault

    def lift(self, name: str) -> None:
        """Take a fault away; none of that name is no error."""
        self._faults.pop(name, None)

    def lift_all(self) -> None:
        """Take every fault away."""
        self._faults.clear()

    def lost(self, sender: str, receiver: str) -> float:
        """Return the share of packets lost on a link: the worst of all faults'."""
        link = (sender, receiver)
        return max((fault.lost.get(link, 0.0) for fault in self._faults.values()), default=0.0)

    def lost_to(self, receiver: str) -> dict[str, float]:
        """Return the share lost from each sender, where any is."""
        senders = (one for one in (*self.nodes, CLIENTS) if one != receiver)
        shares = {sender: self.lost(sender, receiver) for sender in senders}
        return {sender: share for sender, share in shares.items() if share > 0}

    def rate_of(self, node: str) -> int | None:
        """Return the bits a second that a node is bound to, None for no bound."""
        rates = [
            fault.rate_bits_per_s[node]
            for fault in self._faults.values()
            if node in fault.rate_bits_per_s
        ]
        return min(rates, default=None)


def cut(a: str, b: str, *, one_way: bool = False) -> LinkFault:
    """Cut two from each other; `one_way`: only what `a` sends does not arrive."""
    return cut_links([(a, b)] if one_way else [(a, b), (b, a)])


def cut_links(links: Iterable[Link]) -> LinkFault:
    """Cut so many links, each one way."""
    return LinkFault(lost=dict.fromkeys(links, CUT))


def split(groups: Iterable[Iterable[str]]) -> LinkFault:
    """Cut the nodes of each group from those of the others; clients still reach them all."""
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
    """Cut one node from all others, and from clients too if so asked."""
    far = [one for one in others if one != node] + ([CLIENTS] if clients else [])
    return cut_links(link for one in far for link in ((node, one), (one, node)))


def lossy(nodes: Iterable[str], ends: Iterable[str], share: float) -> LinkFault:
    """Lose a share of what the nodes send to any end and receive from it."""
    assert 0 < share <= 1
    ends = tuple(ends)
    pairs = [(node, end) for node in nodes for end in ends if node != end]
    return LinkFault(
        lost={link: share for one, other in pairs for link in ((one, other), (other, one))}
    )


def slow(nodes: Iterable[str], bits_per_s: int) -> LinkFault:
    """Bound what goes to and from each of the nodes."""
    return LinkFault(rate_bits_per_s=dict.fromkeys(nodes, bits_per_s))


def majorities_ring(ring: Sequence[str]) -> LinkFault:
    """Seat nodes at a round table where each hears only its nearest: a majority, another each.

    With three, where the nearest are all, two do not hear each other.
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
