"""Pool that bounds the response bytes that clients have not read, over all connections.

Pure. The pool counts encoded responses that a socket did not accept immediately; file slices take
no memory. While the pool is exhausted, further requests of a connection are served only after all
its responses have been sent. `sweep` then closes the connections with the most unread bytes whose
clients read nothing. If the unread bytes reach twice the pool's size, the connection with the most
unread bytes is closed immediately.
"""

from typing import Protocol


class ResponseMemoryHolder(Protocol):
    """Interface by which the pool of response memory closes a connection."""

    def give_up(self, reason: str) -> None:
        """Close the connection, because its client does not read its responses while other
        connections need the memory of unread responses."""
        ...


class ResponseMemory:
    """Pool that bounds unread response bytes, counted by connection."""

    __slots__ = ("_held", "_moved", "given_up_count", "held_bytes", "is_used_up", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.is_used_up = False
        self.given_up_count = 0
        """Number of connections closed because their clients did not read their responses."""
        self._held: dict[ResponseMemoryHolder, int] = {}
        self._moved: set[ResponseMemoryHolder] = set()

    def held_by(self, holder: ResponseMemoryHolder) -> int:
        """Return the number of response bytes of a connection that its client has not read."""
        return self._held.get(holder, 0)

    def settle(
        self, holder: ResponseMemoryHolder, size_bytes: int, *, has_read: bool = False
    ) -> None:
        """Set the number of unread response bytes of a connection. `has_read` is True if its client
        has read response bytes since the last call."""
        self._count(holder, size_bytes)
        if has_read:
            self._moved.add(holder)
        while self.held_bytes > 2 * self.limit_bytes and self._held:
            self._give_up(max(self._held, key=self.held_by))

    def _count(self, holder: ResponseMemoryHolder, size_bytes: int) -> None:
        self.held_bytes += size_bytes - self._held.pop(holder, 0)
        if size_bytes:
            self._held[holder] = size_bytes
        self.is_used_up = self.held_bytes >= self.limit_bytes

    def sweep(self) -> None:
        """Close the connections with the most unread response bytes whose clients have read nothing
        since the last call. Does nothing if the pool is not exhausted.

        Must be called about once a second.
        """
        moved, self._moved = self._moved, set()
        if not self.is_used_up:
            return
        for holder in sorted(self._held, key=self.held_by, reverse=True):
            if not self.is_used_up:
                return
            if holder not in moved:
                self._give_up(holder)

    def _give_up(self, holder: ResponseMemoryHolder) -> None:
        self._count(holder, 0)
        self.given_up_count += 1
        holder.give_up("its client does not read its responses, and others need their memory")
