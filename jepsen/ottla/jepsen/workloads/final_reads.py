"""The reads at the end: fresh clients read every key from its beginning until nothing is missing.

Pure.  A thread throws its client away, assigns all keys and polls; after ten seconds without news
it does so again, so a client that got stuck costs a turn and not the verdict.  What is still unseen
when the time is over is lost or late, and the log checker says so.
"""

from collections.abc import Mapping
from typing import Protocol

from ottla.jepsen.workloads.load import SECOND, Op

TURN_NS = 10 * SECOND
TIME_NS = 120 * SECOND
FINAL = {"final": True}
READERS_MAX = 2
"""Threads of each client kind that read everything: each reads all there is."""


class Goal(Protocol):
    """What there is to read."""

    def highest(self) -> Mapping[str, int]:
        """Return, for each key, the highest offset that anybody was told of."""
        ...


class FinalReads:
    """Where the final readers stand."""

    def __init__(self, kinds: tuple[str, ...], goal: Goal) -> None:
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
        """Whether every reader came to the end of every key."""
        return all(self._is_through(thread) for thread in self.readers)

    def next_op(self, thread: int, now_ns: int) -> Op | None:
        """Return the thread's next step; None when it is through, or out of time."""
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
        """All keys are assigned, from their beginnings."""
        self._is_assigned[thread] = True

    def on_read(self, thread: int, key: str, offset: int) -> None:
        """A final poll came so far."""
        read = self._read.setdefault(thread, {})
        if offset > read.get(key, -1):
            read[key] = offset
            self._has_progress.add(thread)
