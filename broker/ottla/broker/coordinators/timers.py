"""Deadlines by name. Setting, moving or cancelling a deadline costs one dictionary operation. Pure.

A heartbeat moves a deadline thousands of times before it expires once. The heap therefore stores
the earliest time at which a deadline may expire, and the current deadline is checked only at that
time.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """Deadlines in milliseconds on one clock. Each deadline has a name, under which it can be moved
    or cancelled."""

    __slots__ = ("_due", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        """Time in milliseconds of each deadline's entry in the heap, by the deadline's name. The
        deadline itself may be later."""
        self._heap: list[tuple[int, int, K]] = []
        self._sequence = 0

    def set(self, name: K, deadline_ms: int) -> None:
        """Set the deadline of `name` in milliseconds, replacing the previous one."""
        self._due[name] = deadline_ms
        queued_ms = self._queued.get(name)
        if queued_ms is None or deadline_ms < queued_ms:
            self._push(name, deadline_ms)

    def cancel(self, name: K) -> None:
        """Cancel the deadline of `name`, if it has a deadline."""
        self._due.pop(name, None)

    def deadline_of(self, name: K) -> int | None:
        """Return the deadline of `name` in milliseconds, or None if the name has no deadline."""
        return self._due.get(name)

    def next_deadline_ms(self) -> int | None:
        """Return the earliest time in milliseconds at which a deadline may have passed, or None if
        there is no deadline."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Iterator[K]:
        """Remove and yield each name whose deadline has passed at `now_ms`, in the order of the
        deadlines."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued_ms, _, name = heapq.heappop(heap)
            if self._queued.get(name) != queued_ms:
                continue  # It is also in the heap with an earlier time.
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
