"""The throttle of a balance, adapted to the latency of producers and to the health of replicas.

Pure.  The throttle is halved when producers wait longer than before the moves, or when further
replicas have fallen out of sync.  Otherwise it rises by a quarter, up to its highest value: because
it falls faster than it rises, it stays below the rate that slows producers, as in TCP.
"""

from collections import deque
from statistics import median

WORSE_FACTOR = 1.2
"""Ratio above which the moves are slowed down: the 99th percentile of Produce requests, divided by
the one before the moves.  A smaller one reacts to chance; a larger one lets producers wait."""

WORSE_US_MIN = 500
"""Minimum difference in µs that counts.  Without it, a percentile of 0.2 ms that rises to 0.3 ms
would slow down the moves."""

FIRST_SHARE = 4
"""Divisor of the highest throttle at which a balance starts while there are producers.  The latency
of producers is known only some seconds later."""

SAMPLES_KEPT = 30
"""Number of samples without moves (half a minute) whose median is the percentile to compare
with."""


class BalancePace:
    """Throttle of a balance, as decided by one controller.  A controller that takes over starts
    with the lowest percentile that it has seen."""

    def __init__(self) -> None:
        self._idle_us: deque[int] = deque(maxlen=SAMPLES_KEPT)
        self._moving_us: deque[int] = deque(maxlen=SAMPLES_KEPT)
        self._lowest_us: float | None = None
        self._under_replicated: int | None = None

    def note_idle(self, p99_us: int | None) -> None:
        """Record the 99th percentile of Produce requests in µs while nothing moves. None if there
        were no requests."""
        self._lowest_us = self._under_replicated = None
        self._moving_us.clear()
        if p99_us is not None:
            self._idle_us.append(p99_us)

    def note_moving(self, p99_us: int | None) -> None:
        """Record the 99th percentile of Produce requests in µs during the moves. None if there were
        no requests."""
        if p99_us is not None:
            self._moving_us.append(p99_us)

    def first_rate(self, *, lowest: int, highest: int) -> int:
        """Return the throttle in bytes per second at which a new balance starts."""
        return max(lowest, highest // FIRST_SHARE) if self._idle_us else highest

    def next_rate(self, rate: int, *, lowest: int, highest: int, under_replicated: int) -> int:
        """Return the next throttle in bytes per second.

        The latency of producers is the median of the percentiles recorded since the last call,
        because a single one is often high by chance.  `under_replicated` is the number of
        partitions with replicas out of sync, without those that are being copied.
        """
        has_lost = under_replicated > (
            under_replicated if self._under_replicated is None else self._under_replicated
        )
        self._under_replicated = under_replicated
        p99_us = median(self._moving_us) if self._moving_us else None
        self._moving_us.clear()
        is_slow = p99_us is not None and p99_us > self._limit_us(p99_us)
        wanted = rate // 2 if has_lost or is_slow else rate + rate // 4
        return min(max(wanted, lowest), highest)

    def _limit_us(self, p99_us: float) -> float:
        """Return the percentile above which producers wait too long."""
        self._lowest_us = p99_us if self._lowest_us is None else min(self._lowest_us, p99_us)
        usual_us = median(self._idle_us) if self._idle_us else self._lowest_us
        return max(WORSE_FACTOR * usual_us, usual_us + WORSE_US_MIN)
