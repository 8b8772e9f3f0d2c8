"""A rate over sampled windows, as in Kafka's quotas.

Pure; the time is an argument. A `SampledRate` keeps several windows: the complete ones and the one
that is being filled.
"""

from collections import deque
from typing import NamedTuple

from ottla.model.limits import INT32_MAX

THROTTLE_MS_MAX = INT32_MAX
"""Longest throttle time in ms, 24 days. Responses contain it as an int32. One large request under a
low limit can exceed it, and a longer time could then not be encoded although the request has been
processed."""

IDLE_MS_MAX = 3_600_000
"""Time in ms without usage after which a client's measured usage is deleted, as in Kafka."""

LOOKS_KEPT_MAX = 60
"""Number of samples of a counter that are kept to compute its rate, at about 150 bytes each. With
fewer samples, the time that the rate covers is less exact."""


class WindowShape(NamedTuple):
    """The windows of a sampled rate: `quota.window.num` and `quota.window.size.seconds`."""

    window_count: int = 11
    """Number of windows: the complete ones and the one that is being filled."""
    window_ms: int = 1_000

    @property
    def span_ms(self) -> int:
        """Time in ms for which a recorded value counts towards the rate."""
        return self.window_count * self.window_ms

    @property
    def credit_ms(self) -> int:
        """Time in ms whose quota may be used at once: the time of all windows but one, or of the
        window if there is only one."""
        return max(1, self.window_count - 1) * self.window_ms


class _Window:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.total = 0.0


class SampledRate:
    """Rate of recently recorded values, per second."""

    __slots__ = ("_measured_ms_min", "_shape", "_span_ms", "_total", "_window_ms", "_windows")

    def __init__(self, shape: WindowShape) -> None:
        self._shape = shape
        self._measured_ms_min = (shape.window_count - 1) * shape.window_ms
        self._window_ms = shape.window_ms
        self._span_ms = shape.span_ms
        self._windows: deque[_Window] = deque()
        self._total = 0.0

    def record(self, value: float, now_ms: int) -> None:
        """Record a value at a time. A negative value cancels an earlier one."""
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
        """Return the delay, in ms, after which the rate is back at a bound if no further value is
        recorded."""
        if self._total * 1_000 <= bound * self._measured_ms_min:
            return 0  # the usual case, even if old windows still counted
        measured_ms = self.measured_ms(now_ms)
        return throttle_ms(self._total * 1_000 / measured_ms, bound, measured_ms)

    def measured_ms(self, now_ms: int) -> int:
        """Return the time, in ms, over which the rate is measured.

        It is at least all windows but one, so that the first requests of a client do not count as a
        burst.
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
                self._total = 0.0  # removes rounding errors


class SimpleRate(SampledRate):
    """A rate that is measured from its first recorded value on. Unused time before that gives no
    credit.

    Replication is measured in this way. If its rate were measured over all windows but one, a limit
    would have no effect for ten seconds.
    """

    __slots__ = ()

    def __init__(self, shape: WindowShape) -> None:
        super().__init__(shape)
        self._measured_ms_min = shape.window_ms

    def measured_ms(self, now_ms: int) -> int:
        """Return the time over which the rate is measured: at least one window."""
        self._drop_old(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        return max(elapsed_ms, self._shape.window_ms)

    def excess_ms(self, bound: float, now_ms: int) -> int:
        """Return the time, in ms, for which no value may be recorded until the rate is at its
        bound.

        It is `throttle_ms` plus the rest of the first window, if that has not ended: waiting during
        it does not lower the rate.
        """
        measured_ms = self.measured_ms(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else measured_ms
        until_ms = throttle_ms(self.per_second(now_ms), bound, measured_ms)
        return until_ms + measured_ms - elapsed_ms if until_ms else 0


class RateBetweenLooks:
    """Rate of increase of a counter, computed from samples of its value.

    The code that counts does not need a clock. If samples are further apart than `span_ms`, the
    rate is measured over the time between them.
    """

    def __init__(self, *, span_ms: int, begun_ms: int) -> None:
        """Create a rate that is measured over `span_ms`. The counter is 0 at `begun_ms`."""
        self._span_ms = span_ms
        self._apart_ms = max(1, span_ms // LOOKS_KEPT_MAX)
        self._looks = deque([(begun_ms, 0)])

    def per_second(self, count: int, now_ms: int) -> float:
        """Add a sample of the counter. Returns its rate of increase, over at least half of the
        span."""
        looks = self._looks
        while len(looks) > 1 and now_ms - looks[1][0] >= self._span_ms:
            looks.popleft()
        start_ms, before = looks[0]
        if now_ms - looks[-1][0] >= self._apart_ms:
            looks.append((now_ms, count))
        return (count - before) * 1_000 / max(now_ms - start_ms, self._span_ms // 2)


def throttle_ms(rate: float, bound: float, measured_ms: int) -> int:
    """Return the delay that brings a rate back to its bound: (rate - bound) / bound * measured
    time.

    Returns 0 if the rate is within its bound.
    """
    if rate <= bound:
        return 0
    return whole_ms((rate - bound) / bound * measured_ms if bound > 0 else float("inf"))


def whole_ms(delay_ms: float) -> int:
    """Return a delay as an integer for responses: rounded, and at most `THROTTLE_MS_MAX`."""
    return round(min(delay_ms, THROTTLE_MS_MAX))
