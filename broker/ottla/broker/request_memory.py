"""The pool that bounds what all connections together hold of unfinished requests.

Pure.  It is `queued.max.request.bytes`.  A connection reserves a whole frame when it begins to
hold one; while nothing is left it waits, and its socket is not read.  As in Kafka the last grant
may overdraw the pool: every frame that was granted can be finished, so frames never wait for each
other in a ring.
"""

from collections import deque
from collections.abc import Callable


class RequestMemory:
    """Counts reserved bytes; `limit_bytes` of None is unlimited."""

    __slots__ = ("_waiters", "limit_bytes", "reserved_bytes")

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.reserved_bytes = 0
        self._waiters: deque[Callable[[], None]] = deque()

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserve when anything at all is left, and say whether it was."""
        if self.limit_bytes is not None and self.reserved_bytes >= self.limit_bytes:
            return False
        self.reserved_bytes += size_bytes
        return True

    def when_available(self, on_available: Callable[[], None]) -> None:
        """Call back, once and in order, when `try_reserve` may succeed again."""
        self._waiters.append(on_available)

    def release(self, size_bytes: int) -> None:
        """Give bytes back, and let those who wait try again while there is room."""
        self.reserved_bytes -= size_bytes
        assert self.reserved_bytes >= 0
        waiters = self._waiters
        for _ in range(len(waiters)):
            if self.limit_bytes is not None and self.reserved_bytes >= self.limit_bytes:
                return
            waiters.popleft()()
