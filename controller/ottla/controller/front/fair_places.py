"""Limits the number of connections, and shares the allowed number fairly among the peers'
addresses. Pure.

Each connection uses one of a fixed number of slots. If all slots are in use, the address with the
most connections loses one of its connections. An address with few connections therefore never loses
a connection to an address with many. Addresses have no limits of their own, because all nodes of a
cluster may be behind one address.
"""

from collections import defaultdict
from typing import Generic, TypeVar

K = TypeVar("K")


class FairPlaces(Generic[K]):
    """Limit on the number of connections of one kind, which is shared fairly among the peers'
    addresses. Each allowed connection occupies one slot."""

    def __init__(self, count_max: int, *, is_oldest_replaced: bool) -> None:
        """Create the limit. `count_max` is the maximum number of connections. `is_oldest_replaced`
        selects which connection of an address is closed if there are too many: the oldest or the
        newest."""
        assert count_max > 0
        self.count_max = count_max
        self._is_oldest_replaced = is_oldest_replaced
        self._by_host: defaultdict[str, dict[K, None]] = defaultdict(dict)
        """Connections by the peer's address, the oldest first."""
        self._by_count: defaultdict[int, dict[str, None]] = defaultdict(dict)
        """Addresses of peers by the number of their connections."""
        self._most = 0
        """Number of connections of the peer address that has the most."""
        self._total = 0

    def __len__(self) -> int:
        """Return the current number of allowed connections."""
        return self._total

    @property
    def is_full(self) -> bool:
        """True if the current number of allowed connections has reached the maximum."""
        return self._total >= self.count_max

    def count_of(self, host: str) -> int:
        """Return the number of allowed connections from an address."""
        return len(self._by_host.get(host, ()))

    def take(self, key: K, host: str) -> K | None:
        """Allocate a slot to a connection. Returns the connection that must be closed to free a
        slot, or None if a slot was free. The returned connection may be the new one."""
        self._by_host[host][key] = None
        self._total += 1
        self._move(host, len(self._by_host[host]) - 1)
        if self._total <= self.count_max:
            return None
        greedy = self._by_count[self._most]
        greediest = host if host in greedy else next(iter(greedy))
        places = self._by_host[greediest]
        replaced = next(iter(places if self._is_oldest_replaced else reversed(places)))
        self.free(replaced, greediest)
        return replaced

    def free(self, key: K, host: str) -> None:
        """Free the slot of a closed connection. A second call has no effect."""
        places = self._by_host.get(host)
        if places is None or key not in places:
            return
        del places[key]
        self._total -= 1
        self._move(host, len(places) + 1)
        if not places:
            del self._by_host[host]

    def _move(self, host: str, before: int) -> None:
        """Update the index of addresses by connection count, and the largest count, after a
        connection of the address `host` was added or removed. `before` is the previous connection
        count of the address."""
        now = len(self._by_host[host])
        self._by_count[before].pop(host, None)
        if now:
            self._by_count[now][host] = None
        for count in (before, now):
            if not self._by_count[count]:
                del self._by_count[count]
        # Each change is by one, so that the address itself is the next one below.
        if now > self._most or (before == self._most and before not in self._by_count):
            self._most = now
