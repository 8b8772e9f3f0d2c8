"""The pool that bounds the answers which clients have not read yet, over all connections.

Pure.  It counts encoded answers that a socket did not take at once; file slices take no memory.
While it is used up, a connection is served no request before all its answers have left, and
`sweep` closes those that hold most and read nothing.  Twice its size is never passed: whoever holds
most is closed at once.
"""

from typing import Protocol


class AnswerHolder(Protocol):
    """A connection, as the pool sees it."""

    def give_up(self, reason: str) -> None:
        """Close: its client does not read what it asked for, and others need the memory."""
        ...


class ResponseMemory:
    """Counts bytes of unread answers by connection."""

    __slots__ = ("_held", "_moved", "given_up_count", "held_bytes", "is_used_up", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.is_used_up = False
        self.given_up_count = 0
        """Connections closed for what they did not read."""
        self._held: dict[AnswerHolder, int] = {}
        self._moved: set[AnswerHolder] = set()

    def held_by(self, holder: AnswerHolder) -> int:
        """Return what a connection holds."""
        return self._held.get(holder, 0)

    def settle(self, holder: AnswerHolder, size_bytes: int, *, has_read: bool = False) -> None:
        """Count what a connection holds now; `has_read` says that its client took some."""
        self._count(holder, size_bytes)
        if has_read:
            self._moved.add(holder)
        while self.held_bytes > 2 * self.limit_bytes and self._held:
            self._give_up(max(self._held, key=self.held_by))

    def _count(self, holder: AnswerHolder, size_bytes: int) -> None:
        self.held_bytes += size_bytes - self._held.pop(holder, 0)
        if size_bytes:
            self._held[holder] = size_bytes
        self.is_used_up = self.held_bytes >= self.limit_bytes

    def sweep(self) -> None:
        """While nothing is left, close those that hold most and have read nothing since the last.

        To be called once a second or so.
        """
        moved, self._moved = self._moved, set()
        if not self.is_used_up:
            return
        for holder in sorted(self._held, key=self.held_by, reverse=True):
            if not self.is_used_up:
                return
            if holder not in moved:
                self._give_up(holder)

    def _give_up(self, holder: AnswerHolder) -> None:
        self._count(holder, 0)
        self.given_up_count += 1
        holder.give_up("its client does not read its answers, and others need their memory")
