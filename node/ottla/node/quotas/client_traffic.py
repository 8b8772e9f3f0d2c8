"""Counts the requests, bytes and time of every client, even without a quota, while an operator
watches (`ottla top`).

Pure; the caller passes the time. At other times nothing is counted, so requests have no additional
cost. Clients choose their names, so the number of counted clients is bounded: if there are too
many, the clients with the fewest bytes are dropped.
"""

from collections.abc import Mapping
from heapq import nlargest

from ottla.node.quotas.client_quotas import short_name

CLIENTS_MAX = 1_000
"""Maximum number of clients that are counted at a time. Above this number, the half with the fewest
bytes is dropped."""

WATCH_MS_MAX = 600_000
"""Maximum number of milliseconds for which clients are counted after an operator's request."""


class ClientCounts:
    """Requests, bytes and processing time of one client since the counting began."""

    __slots__ = ("bytes_in", "bytes_out", "request_count", "used_ns")

    def __init__(self) -> None:
        self.request_count = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.used_ns = 0


class ClientTraffic:
    """Counts of requests, bytes and processing time of each client of this node, by user and client
    id."""

    def __init__(self) -> None:
        self.is_watched = False
        """True if the requests of all clients must be counted."""
        self._until_ms = 0
        self._counts: dict[tuple[str, str], ClientCounts] = {}

    @property
    def counts(self) -> Mapping[tuple[str, str], ClientCounts]:
        """Counts of requests, bytes and processing time of each client, by user and client id."""
        return self._counts

    def watch(self, for_ms: int, now_ms: int) -> None:
        """Count all clients for a number of milliseconds from now, at most `WATCH_MS_MAX`. If no
        clients are being counted at present, all counts begin at 0."""
        if not self.is_watched:
            self._counts.clear()
        self.is_watched = True
        self._until_ms = max(self._until_ms, now_ms + min(for_ms, WATCH_MS_MAX))

    def is_over(self, now_ms: int) -> bool:
        """Return whether the period that the last call of `watch` began has ended. At the end of
        the period, this call also stops the counting of clients."""
        if now_ms < self._until_ms:
            return False
        self.is_watched = False
        self._until_ms = 0
        self._counts.clear()
        return True

    def note(
        self, user: str, client_id: str, *, bytes_in: int, bytes_out: int, used_ns: int
    ) -> None:
        """Count one request of a client, with its processing time in nanoseconds."""
        names = user, client_id
        found = self._counts.get(names)
        if found is None:
            names = short_name(user), short_name(client_id)
            found = self._counts.get(names)
            if found is None:
                if len(self._counts) >= CLIENTS_MAX:
                    self._drop_smallest()
                found = self._counts[names] = ClientCounts()
        found.request_count += 1
        found.bytes_in += bytes_in
        found.bytes_out += bytes_out
        found.used_ns += used_ns

    def _drop_smallest(self) -> None:
        def size(item: tuple[tuple[str, str], ClientCounts]) -> int:
            return item[1].bytes_in + item[1].bytes_out

        self._counts = dict(nlargest(CLIENTS_MAX // 2, self._counts.items(), key=size))
