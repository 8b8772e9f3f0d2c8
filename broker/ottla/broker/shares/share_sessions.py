"""Share sessions: the partitions that one member of a share group fetches from this broker, and the
epoch of its last request (KIP-932).

Pure. A session belongs to a connection and ends when the connection closes. The rules are Kafka's:
epoch 0 opens or replaces a session, each following request increments the epoch, and -1 ends the
session.
"""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.limits import INT32_MAX

FINAL_EPOCH = -1
INITIAL_EPOCH = 0

T = TypeVar("T")


class SessionKey(NamedTuple):
    """Group id and member id that identify a share session."""

    group_id: str
    member_id: str


PartitionId = tuple[UUID, int]
"""Topic id and index that identify a partition of a topic."""


class ShareSession(Generic[T]):
    """Share session of one member on this broker: the partitions that the member fetches. `T` is
    the type of its partitions."""

    __slots__ = ("connection_id", "epoch", "key", "targets")

    def __init__(self, key: SessionKey, connection_id: int) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = 1
        """Session epoch that the member's next share request must have."""
        self.targets: dict[PartitionId, T] = {}


class ShareSessionCache(Generic[T]):
    """Open share sessions of this broker, by group id and member id."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        """Maximum number of open share sessions (`group.share.max.share.sessions`)."""
        self.eviction_count = 0
        """Number of share sessions that ended because their connection was closed."""
        self._by_key: dict[SessionKey, ShareSession[T]] = {}
        self._by_connection: dict[int, dict[SessionKey, None]] = {}
        self._by_group: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[ShareSession[T]]:
        return iter(self._by_key.values())

    @property
    def partition_count(self) -> int:
        """Number of partitions in all open share sessions."""
        return sum(len(session.targets) for session in self)

    def holds(self, session: ShareSession[T]) -> bool:
        """Return whether this cache still contains a share session, which means that the session is
        open."""
        return self._by_key.get(session.key) is session

    def has_group(self, group_id: str) -> bool:
        """Return whether any member of a share group has an open session on this broker."""
        return group_id in self._by_group

    def open(self, key: SessionKey, connection_id: int) -> ShareSession[T]:
        """Open a share session for a member, and end an earlier session of the same member.

        Raises RefusedError(SHARE_SESSION_LIMIT_REACHED) if there are too many sessions.
        """
        earlier = self._by_key.get(key)
        if earlier is not None:
            self.close(earlier)
        elif len(self._by_key) >= self.count_max:
            raise RefusedError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession[T](key, connection_id)
        self._by_key[key] = session
        self._by_connection.setdefault(connection_id, {})[key] = None
        self._by_group[key.group_id] = self._by_group.get(key.group_id, 0) + 1
        return session

    def find(self, key: SessionKey, epoch: int) -> ShareSession[T]:
        """Return the share session that a request continues or ends.

        Raises RefusedError: SHARE_SESSION_NOT_FOUND, or INVALID_SHARE_SESSION_EPOCH if the request
        does not have the expected epoch.
        """
        session = self._by_key.get(key)
        if session is None:
            raise RefusedError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise RefusedError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch == INT32_MAX else epoch + 1
        return session

    def close(self, session: ShareSession[T]) -> None:
        """End a share session, if the session is still open."""
        key = session.key
        if not self.holds(session):
            return
        del self._by_key[key]
        of_connection = self._by_connection[session.connection_id]
        del of_connection[key]
        if not of_connection:
            del self._by_connection[session.connection_id]
        self._by_group[key.group_id] -= 1
        if not self._by_group[key.group_id]:
            del self._by_group[key.group_id]

    def close_connection(self, connection_id: int) -> list[ShareSession[T]]:
        """End the share sessions of a closed client connection, and return them."""
        closed = [self._by_key[key] for key in self._by_connection.get(connection_id, ())]
        for session in closed:
            self.close(session)
        self.eviction_count += len(closed)
        return closed
