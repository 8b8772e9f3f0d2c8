"""When clients die: each thread's about every half minute, never all at once.

Pure.
"""

from random import Random

from ottla.jepsen.workloads.load import SECOND, Op

LIFE_NS = 30 * SECOND

CRASH = Op("crash")


class Crashes:
    """The clients' remaining lives."""

    def __init__(self, life_ns: int = LIFE_NS) -> None:
        self._life_ns = life_ns
        self._ends_ns: dict[int, int] = {}

    def is_due(self, thread: int, now_ns: int, rng: Random) -> bool:
        """Return whether a thread's client dies now; then its next life begins."""
        end_ns = self._ends_ns.get(thread)
        if end_ns is not None and now_ns < end_ns:
            return False
        # From half a life to one and a half: the first ends are spread as all others.
        self._ends_ns[thread] = now_ns + self._life_ns // 2 + rng.randrange(self._life_ns)
        return end_ns is not None
