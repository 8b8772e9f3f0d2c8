"""Deadlines by name: set, moved and cancelled for the price of a dictionary entry.  Pure.

A heartbeat moves a deadline thousands of times before it comes once; so the heap keeps the first
instant at which a name may be due, and looks at the real one only then.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """Deadlines on one clock, each under a name of its own."""

    __slots__ = ("_due", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        """The instant at which a name stands in the heap."""
        self._heap: list[tuple[int, int, K]] = []
        self._sequence = 0

    def set(self, name: K, deadline_ms: int) -> None:
        """Have `name` come at `deadline_ms`, and not at what was set before."""
        self._due[name] = deadline_ms
        queued_ms = self._queued.get(name)
        if queued_ms is None or deadline_ms < queued_ms:
            self._push(name, deadline_ms)

    def cancel(self, name: K) -> None:
        """Have `name` not come; one that is not set is fine."""
        self._due.pop(name, None)

    def deadline_of(self, name: K) -> int | None:
        """Return when `name` is due."""
        return self._due.get(name)

    @property
    def next_deadline_ms(self) -> int | None:
        """The first instant at which something may be due; None with nothing set."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Iterator[K]:
        """Yield each name whose deadline has come, the earliest first; it is not set then."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued_ms, _, name = heapq.heappop(heap)
            if self._queued.get(name) != queued_ms:
                continue  # it stands elsewhere in the heap, earlier
            del self._queued[name]
            deadline_ms = self._due.get(name)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._push(name, deadline_ms)
                continue
            del self._due[name]
            yield name

    def _push(self, name: K, deadline_ms: int) -> None:
        self._sequence += 1
        self._queued[name] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, self._sequence, name))
