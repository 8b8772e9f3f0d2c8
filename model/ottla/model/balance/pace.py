"""The throttle of a balance, adapted to the latency of producers and to the health of replicas.

Pure.  The throttle is halved when producers wait longer than before the moves, or when further
replicas have fallen out of sync.  Otherwise it rises by a quarter, up to its highest value. Because
it falls faster than it rises, it stays below the rate that slows producers, as TCP's congestion
control does.
"""

from collections import deque
from statistics import median

WORSE_FACTOR = 1.5
"""Ratio of the 99th percentile to its value before the moves, above which the moves are slowed
down. A smaller ratio reacts to random variation. With a larger one, producers wait for longer."""

WORSE_US_MIN = 5_000
"""Minimum increase of the percentile, in µs, that slows down the moves. Without it, a rise from 1
ms to 2 ms would slow them down."""

SAMPLES_KEPT = 30
"""Number of samples without moves (half a minute) whose median is the latency with which later
percentiles are compared."""


class BalancePace:
    """Throttle of a balance, as one controller adapts it. A controller that becomes active during a
    balance compares with the lowest latency that it has seen."""

    def __init__(self) -> None:
        self._idle_us: deque[int] = deque(maxlen=SAMPLES_KEPT)
        self._lowest_us: int | None = None
        self._under_replicated: int | None = None

    def note_idle(self, p99_us: int | None) -> None:
        """Record the latency of producers while no partition moves."""
        self._lowest_us = self._under_replicated = None
        if p99_us is not None:
            self._idle_us.append(p99_us)

    def next_rate(
        self, rate: int, *, lowest: int, highest: int, p99_us: int | None, under_replicated: int
    ) -> int:
        """Return the next throttle in bytes per second.

        `p99_us` is the 99th percentile of Produce requests on the slowest broker, or None if there
        were none.  `under_replicated` is the number of partitions with replicas out of sync,
        without replicas that are being copied.
        """
        has_lost = under_replicated > (
            under_replicated if self._under_replicated is None else self._under_replicated
        )
        self._under_replicated = under_replicated
        is_slow = p99_us is not None and p99_us > self._limit_us(p99_us)
        wanted = rate // 2 if has_lost or is_slow else rate + rate // 4
        return min(max(wanted, lowest), highest)

    def _limit_us(self, p99_us: int) -> float:
        """Return the latency percentile, in µs, above which the moves are slowed down."""
        self._lowest_us = p99_us if self._lowest_us is None else min(self._lowest_us, p99_us)
        usual_us = median(self._idle_us) if self._idle_us else self._lowest_us
        return max(WORSE_FACTOR * usual_us, usual_us + WORSE_US_MIN)
