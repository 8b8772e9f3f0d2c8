"""Bookkeeping of requests: one request in flight per voter, its deadline, and the back-off after a
failure.

`Requests` is a mutable class that owns only this bookkeeping. It drops a response that matches no
request in flight, because the request timed out or the replica has changed its role since.
"""

from dataclasses import dataclass

from ottla.model.ids import NodeId
from ottla.raft.effects import OutgoingRequest

BACKOFF_DOUBLINGS_MAX = 3
"""Maximum number of times that the back-off between requests to a voter is doubled: it starts at 20
ms and ends at 160 ms. With fewer, a dead voter gets too many requests. With more, a restarted voter
or a new leader is found later."""


@dataclass(slots=True)
class _Connection:
    in_flight: OutgoingRequest | None = None
    busy_until_ms: int = 0
    """Deadline in monotonic ms of the request in flight to this voter. Without a request in flight,
    the end of the back-off."""
    failure_count: int = 0


class Requests:
    """Requests in flight to voters, and the times at which voters may be contacted again."""

    __slots__ = ("_backoff_ms", "_connections", "_last_request_id")

    def __init__(self, backoff_ms: int) -> None:
        self._backoff_ms = backoff_ms
        self._connections: dict[NodeId, _Connection] = {}
        self._last_request_id = 0

    def next_request_id(self) -> int:
        """Return a new request id, which was never used before by this replica."""
        self._last_request_id += 1
        return self._last_request_id

    def start(self, outgoing: OutgoingRequest, now_ms: int) -> None:
        """Record that a request was sent to a voter, with its deadline."""
        connection = self._connections.setdefault(outgoing.to, _Connection())
        assert connection.in_flight is None
        connection.in_flight = outgoing
        connection.busy_until_ms = now_ms + outgoing.timeout_ms

    def take(self, request_id: int) -> OutgoingRequest | None:
        """Remove the request in flight with this id, and return it. Returns None if there is no
        such request."""
        for connection in self._connections.values():
            outgoing = connection.in_flight
            if outgoing is not None and outgoing.request_id == request_id:
                connection.in_flight = None
                connection.busy_until_ms = 0
                return outgoing
        return None

    def succeeded(self, node_id: NodeId) -> None:
        """Reset the back-off of a voter after its response."""
        self._connections.setdefault(node_id, _Connection()).failure_count = 0

    def back_off(self, node_id: NodeId, now_ms: int) -> None:
        """Pause requests to a voter, for twice as long after each consecutive failure."""
        connection = self._connections.setdefault(node_id, _Connection())
        assert connection.in_flight is None
        doublings = min(connection.failure_count, BACKOFF_DOUBLINGS_MAX)
        connection.busy_until_ms = now_ms + (max(1, self._backoff_ms) << doublings)
        connection.failure_count += 1

    def is_failing(self, node_id: NodeId) -> bool:
        """Return whether the last request to a voter failed, for example by a timeout."""
        connection = self._connections.get(node_id)
        return connection is not None and connection.failure_count > 0

    @property
    def in_flight_count(self) -> int:
        """Number of requests to voters that have no response yet."""
        return sum(connection.in_flight is not None for connection in self._connections.values())

    def busy_until_ms(self, node_id: NodeId, now_ms: int) -> int | None:
        """Return the monotonic time in ms at which a voter may be contacted again, or None if it
        may be contacted now."""
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
        """Drop all requests in flight to voters. Later responses to them belong to an earlier role
        and are ignored."""
        self._connections.clear()
