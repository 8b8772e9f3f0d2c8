"""A rate over sampled windows, as Kafka's quotas measure it.

Pure; the time goes in.  A `SampledRate` keeps some windows: those that are whole and the
one that fills.  Seed 003, "the sampled Rate"; features QU12-QU14.
"""

from collections import deque
from typing import NamedTuple

from ottla.model.limits import INT32_MAX

THROTTLE_MS_MAX = INT32_MAX
"""The longest throttle, of 24 days.  Responses and nodes carry it as an int32, which a low limit
exceeds with one large request; what is longer would fail to be encoded after the work was done."""

LOOKS_KEPT_MAX = 60
"""Looks at a counter that are kept for the span of its rate, at some 150 bytes each."""


class WindowShape(NamedTuple):
    """How a rate is sampled: `quota.window.num` and `quota.window.size.seconds`."""

    window_count: int = 11
    """Windows kept: the whole ones and the one that fills."""
    window_ms: int = 1_000

    @property
    def span_ms(self) -> int:
        """Time over which what was recorded counts."""
        return self.window_count * self.window_ms

    @property
    def credit_ms(self) -> int:
        """Time whose share may be used at once: of all windows but one, and of one at least."""
        return max(1, self.window_count - 1) * self.window_ms


class _Window:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.total = 0.0


class SampledRate:
    """What was recorded lately, per second."""

    __slots__ = ("_measured_ms_min", "_shape", "_span_ms", "_total", "_window_ms", "_windows")

    def __init__(self, shape: WindowShape) -> None:
        self._shape = shape
        self._measured_ms_min = (shape.window_count - 1) * shape.window_ms
        self._window_ms = shape.window_ms
        self._span_ms = shape.span_ms
        self._windows: deque[_Window] = deque()
        self._total = 0.0

    def record(self, value: float, now_ms: int) -> None:
        """Count a value, which is negative where an earlier one is taken back."""
        windows = self._windows
        if not windows or now_ms - windows[-1].start_ms >= self._window_ms:
            self._drop_old(now_ms)
            windows.append(_Window(now_ms))
        newest = windows[-1]
        newest.total += value
        newest.last_ms = now_ms
        self._total += value

    def per_second(self, now_ms: int) -> float:
        """Return the rate over the windows that still count."""
        measured_ms = self.measured_ms(now_ms)
        return self._total * 1_000 / measured_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return the delay that brings the rate back to a bound; nothing is taken back of it."""
        if self._total * 1_000 <= bound * self._measured_ms_min:
            return 0  # as most often, whatever of the total is too old to count
        measured_ms = self.measured_ms(now_ms)
        return throttle_ms(self._total * 1_000 / measured_ms, bound, measured_ms)

    def measured_ms(self, now_ms: int) -> int:
        """Return the time that the rate is measured over.

        At least all windows but one, so that the first moments of a client are no burst.
        """
        self._drop_old(now_ms)
        shape = self._shape
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        missing = shape.window_count - 1 - elapsed_ms // shape.window_ms
        return max(1, elapsed_ms + missing * shape.window_ms if missing > 0 else elapsed_ms)

    def _drop_old(self, now_ms: int) -> None:
        windows = self._windows
        oldest_ms = now_ms - self._span_ms
        while windows and windows[0].last_ms <= oldest_ms:
            self._total -= windows.popleft().total
            if not windows:
                self._total = 0.0  # whatever rounding left


class SimpleRate(SampledRate):
    """A rate that counts from its first record on: what was not used before is no credit.

    Replication is measured so: over all windows but one, a limit would be no limit for ten seconds.
    """

    __slots__ = ()

    def __init__(self, shape: WindowShape) -> None:
        super().__init__(shape)
        self._measured_ms_min = shape.window_ms

    def measured_ms(self, now_ms: int) -> int:
        """Return the time that the rate is measured over: one window at least."""
        self._drop_old(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        return max(elapsed_ms, self._shape.window_ms)

    def excess_ms(self, bound: float, now_ms: int) -> int:
        """Return how long nothing may be recorded until the rate is at its bound.

        It is `throttle_ms`, and what is left of a first window, which no waiting dilutes.
        """
        measured_ms = self.measured_ms(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else measured_ms
        until_ms = throttle_ms(self.per_second(now_ms), bound, measured_ms)
        return until_ms + measured_ms - elapsed_ms if until_ms else 0


class RateBetweenLooks:
    """The rate of a counter, of the time since an earlier look at it.

    What counts need not know the time.  Between looks further apart than the span the rate is that
    of the time between them.
    """

    def __init__(self, *, span_ms: int, begun_ms: int) -> None:
        """Measure over `span_ms`; the counter is 0 at `begun_ms`."""
        self._span_ms = span_ms
        self._apart_ms = max(1, span_ms // LOOKS_KEPT_MAX)
        self._looks = deque([(begun_ms, 0)])

    def per_second(self, count: int, now_ms: int) -> float:
        """Look at the counter, and return how fast it rose; half of the span is the least time."""
        looks = self._looks
        while len(looks) > 1 and now_ms - looks[1][0] >= self._span_ms:
            looks.popleft()
        start_ms, before = looks[0]
        if now_ms - looks[-1][0] >= self._apart_ms:
            looks.append((now_ms, count))
        return (count - before) * 1_000 / max(now_ms - start_ms, self._span_ms // 2)


def throttle_ms(rate: float, bound: float, measured_ms: int) -> int:
    """Return the delay that brings a rate back to its bound: (rate - bound) / bound * time.

    A rate within its bound needs none.
    """
    if rate <= bound:
        return 0
    return whole_ms((rate - bound) / bound * measured_ms if bound > 0 else float("inf"))


def whole_ms(delay_ms: float) -> int:
    """Return a delay as responses carry it: rounded, and at most `THROTTLE_MS_MAX`."""
    return round(min(delay_ms, THROTTLE_MS_MAX))
