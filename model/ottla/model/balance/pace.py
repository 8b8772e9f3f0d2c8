"""Throttle of a balance, adapted to the latency of Produce requests and to the health of replicas.

Pure. The throttle is halved when Produce requests take longer than before the moves, or when more
replicas have fallen out of sync. Otherwise it rises by a quarter, up to the configured maximum.
Like a TCP window, it falls faster than it rises. It therefore stays below the rate that slows down
producers.
"""

from collections import deque
from statistics import median

WORSE_FACTOR = 1.1
"""Ratio of the 99th percentile of Produce latency during the moves to that before the moves, above
which the throttle is halved. The throttle oscillates around the rate at which this ratio is
reached, and producers should wait at most 1.2 times as long as before."""

WORSE_US_MIN = 100
"""Minimum increase in Produce latency, in µs, that halves the throttle. Without this minimum, an
increase from 0.20 ms to 0.25 ms would slow the moves down."""

FIRST_SHARE = 4
"""Number by which the maximum throttle is divided when a balance starts while there are producers.
Their latency during the moves is measured only some seconds later."""

SAMPLES_KEPT = 30
"""Number of latency samples taken before the moves (half a minute), whose median is the normal
latency of Produce requests."""


class BalancePace:
    """Throttle of a balance, as one controller decides it. A controller that becomes active during
    a balance has no samples from before the moves. It uses the lowest percentile measured so far as
    the normal latency."""

    def __init__(self) -> None:
        self._idle_us: deque[int] = deque(maxlen=SAMPLES_KEPT)
        self._moving_us: deque[int] = deque(maxlen=SAMPLES_KEPT)
        self._lowest_us: float | None = None
        self._under_replicated: int | None = None

    def note_idle(self, p99_us: int | None) -> None:
        """Record the 99th percentile of Produce latency, in µs, while no move is in progress. None
        means that there were no requests."""
        self._lowest_us = self._under_replicated = None
        self._moving_us.clear()
        if p99_us is not None:
            self._idle_us.append(p99_us)

    def note_moving(self, p99_us: int | None) -> None:
        """Record the 99th percentile of Produce latency, in µs, while moves are in progress. None
        means that there were no requests."""
        if p99_us is not None:
            self._moving_us.append(p99_us)

    def first_rate(self, *, lowest: int, highest: int) -> int:
        """Return the throttle, in bytes per second, at which a new balance starts: the maximum if
        there are no producers, otherwise a fraction of it."""
        return max(lowest, highest // FIRST_SHARE) if self._idle_us else highest

    def next_rate(self, rate: int, *, lowest: int, highest: int, under_replicated: int) -> int:
        """Return the throttle that follows `rate`, in bytes per second.

        The current latency of producers is the median of the percentiles recorded since the last
        call, because a single percentile is often high by chance. `under_replicated` is the number
        of partitions with replicas out of sync, not counting replicas that the balance is copying.
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
        """Return the 99th percentile of Produce latency, in µs, above which producers wait too
        long. `p99_us` is the current percentile."""
        self._lowest_us = p99_us if self._lowest_us is None else min(self._lowest_us, p99_us)
        usual_us = median(self._idle_us) if self._idle_us else self._lowest_us
        return max(WORSE_FACTOR * usual_us, usual_us + WORSE_US_MIN)
