"""Places for connections, shared fairly among the addresses of their peers. Pure.

Each connection takes one of a fixed number of places. If all are taken, a connection of the address
that has the most of them loses its place. An address that takes few places thus never loses one to
an address that takes many, without a limit for each address: all nodes of a cluster may be behind
one address.
"""

from collections import Counter, defaultdict
from typing import Generic, TypeVar

K = TypeVar("K")


class FairPlaces(Generic[K]):
    """The places of one kind of connections."""

    def __init__(self, count_max: int, *, is_oldest_replaced: bool) -> None:
        """`is_oldest_replaced` selects which connection of an address loses its place: the oldest
        or the newest."""
        assert count_max > 0
        self.count_max = count_max
        self._is_oldest_replaced = is_oldest_replaced
        self._by_host: defaultdict[str, dict[K, None]] = defaultdict(dict)
        """Connections by address, the oldest first."""
        self._counts: Counter[str] = Counter()
        self._total = 0

    def __len__(self) -> int:
        """Return the number of places taken."""
        return self._total

    @property
    def is_full(self) -> bool:
        """True if all places are taken."""
        return self._total >= self.count_max

    def count_of(self, host: str) -> int:
        """Return the number of places that an address has taken."""
        return self._counts[host]

    def take(self, key: K, host: str) -> K | None:
        """Give a place to a connection. Returns the connection that loses its place, if any; it may
        be the new one itself."""
        self._by_host[host][key] = None
        self._counts[host] += 1
        self._total += 1
        if self._total <= self.count_max:
            return None
        ((greediest, count),) = self._counts.most_common(1)
        if self._counts[host] == count:
            greediest = host
        places = self._by_host[greediest]
        replaced = next(iter(places if self._is_oldest_replaced else reversed(places)))
        self.free(replaced, greediest)
        return replaced

    def free(self, key: K, host: str) -> None:
        """Free the place of a connection.  A second call has no effect."""
        places = self._by_host.get(host)
        if places is None or key not in places:
            return
        del places[key]
        self._counts[host] -= 1
        self._total -= 1
        if not places:
            del self._by_host[host], self._counts[host]
