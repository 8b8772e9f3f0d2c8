"""One request in flight per voter, its deadline, and the back-off after a failure.

A mutable class that owns only this bookkeeping.  A response that no longer matches (its request
timed out, or the replica has changed its role since) is thus recognised and dropped.
"""

from dataclasses import dataclass

from ottla.model.ids import NodeId
from ottla.raft.effects import Outgoing

BACKOFF_DOUBLINGS_MAX = 3
"""20 ms grow to 160 ms: fewer hammer a dead voter, more find it, or a new leader, late."""


@dataclass(slots=True)
class _Connection:
    in_flight: Outgoing | None = None
    busy_until_ms: int = 0
    """The deadline of what is in flight, else the end of the back-off."""
    failure_count: int = 0


class Requests:
    """Which voters may be asked something now, and when the others may."""

    __slots__ = ("_backoff_ms", "_connections", "_last_request_id")

    def __init__(self, backoff_ms: int) -> None:
        self._backoff_ms = backoff_ms
        self._connections: dict[NodeId, _Connection] = {}
        self._last_request_id = 0

    def next_request_id(self) -> int:
        """Return an id that was never used before."""
        self._last_request_id += 1
        return self._last_request_id

    def start(self, outgoing: Outgoing, now_ms: int) -> None:
        """Note that a request is on its way."""
        connection = self._connections.setdefault(outgoing.to, _Connection())
        assert connection.in_flight is None
        connection.in_flight = outgoing
        connection.busy_until_ms = now_ms + outgoing.timeout_ms

    def take(self, request_id: int) -> Outgoing | None:
        """Return the request in flight of this id, which is over now; None if there is none."""
        for connection in self._connections.values():
            outgoing = connection.in_flight
            if outgoing is not None and outgoing.request_id == request_id:
                connection.in_flight = None
                connection.busy_until_ms = 0
                return outgoing
        return None

    def succeeded(self, node_id: NodeId) -> None:
        """Forget earlier failures of a voter."""
        self._connections.setdefault(node_id, _Connection()).failure_count = 0

    def back_off(self, node_id: NodeId, now_ms: int) -> None:
        """Leave a voter alone for a while, twice as long with each failure in a row."""
        connection = self._connections.setdefault(node_id, _Connection())
        assert connection.in_flight is None
        doublings = min(connection.failure_count, BACKOFF_DOUBLINGS_MAX)
        connection.busy_until_ms = now_ms + (max(1, self._backoff_ms) << doublings)
        connection.failure_count += 1

    def is_failing(self, node_id: NodeId) -> bool:
        """Return whether the last request to a voter failed."""
        connection = self._connections.get(node_id)
        return connection is not None and connection.failure_count > 0

    @property
    def in_flight_count(self) -> int:
        """Return how many requests are on their way."""
        return sum(connection.in_flight is not None for connection in self._connections.values())

    def busy_until_ms(self, node_id: NodeId, now_ms: int) -> int | None:
        """Return when a voter may be asked again; None: now."""
        connection = self._connections.get(node_id)
        if connection is None:
            return None
        if connection.in_flight is not None and now_ms >= connection.busy_until_ms:
            connection.in_flight = None
            self.back_off(node_id, now_ms)
        if connection.in_flight is None and now_ms >= connection.busy_until_ms:
            return None
        return connection.busy_until_ms

    def reset(self) -> None:
        """Forget every voter: what comes back from now on belongs to an earlier role."""
        self._connections.clear()
