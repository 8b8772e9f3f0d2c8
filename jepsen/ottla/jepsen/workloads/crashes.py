"""Schedule of client crashes: each thread's client crashes about every 30 seconds, but never all
clients at once.

The module is pure.
"""

from random import Random

from ottla.jepsen.workloads.load import SECOND, Op

LIFE_NS = 30 * SECOND

CRASH = Op("crash")


class Crashes:
    """Random lifetimes of the clients of all threads. A client crashes at the end of its
    lifetime."""

    def __init__(self, life_ns: int = LIFE_NS) -> None:
        self._life_ns = life_ns
        self._ends_ns: dict[int, int] = {}

    def is_due(self, thread: int, now_ns: int, rng: Random) -> bool:
        """Return whether a thread's client must crash now. If so, draws the lifetime of the
        thread's next client."""
        end_ns = self._ends_ns.get(thread)
        if end_ns is not None and now_ns < end_ns:
            return False
        # A lifetime is 0.5 to 1.5 times the mean, so that the first crashes are as spread as later
        # ones.
        self._ends_ns[thread] = now_ns + self._life_ns // 2 + rng.randrange(self._life_ns)
        return end_ns is not None
