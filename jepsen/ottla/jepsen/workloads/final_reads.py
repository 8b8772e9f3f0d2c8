"""Decides the final reads of a run: new clients read every key from its beginning until no record
is missing.

The module is pure. A key is the name of a partition. A thread discards its client, assigns all keys
to a new one and polls. After ten seconds without progress it repeats this. A client that is stuck
therefore costs time, but does not affect the verdict. The log checker reports records that are
still unread at the deadline as lost or late.
"""

from collections.abc import Mapping
from typing import Protocol

from ottla.jepsen.workloads.load import SECOND, Op

TURN_NS = 10 * SECOND
TIME_NS = 120 * SECOND
FINAL = {"final": True}
READERS_MAX = 2
"""Maximum number of threads per kind of client in the final reads. Each of these threads reads
every record."""


class FinalOffsets(Protocol):
    """Interface of the offsets that the final reads (of all records after the load) must reach."""

    def highest(self) -> Mapping[str, int]:
        """Return, by key (partition), the highest offset that any client has received."""
        ...


class FinalReads:
    """Progress of the final reads of a run, in which threads read all records after the load."""

    def __init__(self, kinds: tuple[str, ...], goal: FinalOffsets) -> None:
        self.readers = frozenset(
            thread for thread, kind in enumerate(kinds) if kinds[:thread].count(kind) < READERS_MAX
        )
        self._goal = goal
        self._began_ns: int | None = None
        self._turn_ns: dict[int, int] = {}
        self._is_assigned: dict[int, bool] = {}
        self._has_progress: set[int] = set()
        self._read: dict[int, dict[str, int]] = {}

    @property
    def is_caught_up(self) -> bool:
        """True if every thread has read every key (partition) to its end."""
        return all(self._is_through(thread) for thread in self.readers)

    def next_op(self, thread: int, now_ns: int) -> Op | None:
        """Return the thread's next operation of the final reads. Returns None if the thread has
        read everything or the time limit is over."""
        if self._began_ns is None:
            self._began_ns = now_ns
        goal = self._goal.highest()
        if thread not in self.readers or not goal:
            return None
        if thread in self._has_progress:
            self._has_progress.discard(thread)
            self._turn_ns[thread] = now_ns
        turn_ns = self._turn_ns.get(thread)
        if turn_ns is None or now_ns - turn_ns >= TURN_NS:
            if turn_ns is not None and now_ns - self._began_ns >= TIME_NS:
                return None
            self._turn_ns[thread] = now_ns
            self._is_assigned[thread] = False
            self._read[thread] = {}
            return Op("crash", None, FINAL)
        if not self._is_assigned[thread]:
            return Op("assign", sorted(goal), FINAL)
        return None if self._is_through(thread) else Op("poll", [["poll"]], FINAL)

    def _is_through(self, thread: int) -> bool:
        read = self._read.get(thread, {})
        return all(read.get(key, -1) >= offset for key, offset in self._goal.highest().items())

    def on_assigned(self, thread: int) -> None:
        """Record that the thread has assigned all keys (partitions) to its client, which reads each
        from its beginning."""
        self._is_assigned[thread] = True

    def on_read(self, thread: int, key: str, offset: int) -> None:
        """Record that a thread's final poll of a key (partition) reached an offset."""
        read = self._read.setdefault(thread, {})
        if offset > read.get(key, -1):
            read[key] = offset
            self._has_progress.add(thread)
