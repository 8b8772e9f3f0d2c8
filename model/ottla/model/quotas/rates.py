"""Rates measured over several time windows, as in Kafka's quotas.

Pure: the current time is an argument. A `SampledRate` keeps the windows that are complete and the
one that is in progress.
"""

from collections import deque
from typing import NamedTuple

from ottla.model.limits import INT32_MAX, INT64_MAX

THROTTLE_MS_MAX = INT32_MAX
"""Maximum throttle time in ms, 24 days. Responses contain the throttle time as an int32. One large
request under a low limit can lead to a longer time, which could then not be encoded although the
request has been processed."""

IDLE_MS_MAX = 3_600_000
"""Time in ms without requests after which a client's measured usage is deleted, as in Kafka."""

LOOKS_KEPT_MAX = 60
"""Maximum number of stored samples of a counter, from which its rate is computed. A sample takes
about 150 bytes. With fewer samples, the period that the rate covers is less exact."""


NO_WINDOW_MS = -INT64_MAX
"""Time in ms of the last value, and of the end of the newest window, in a rate without windows.
The next value then begins a window."""


class WindowShape(NamedTuple):
    """Number and length of the windows of a sampled rate: `quota.window.num` and
    `quota.window.size.seconds`."""

    window_count: int = 11
    """Number of windows, including the one that is in progress."""
    window_ms: int = 1_000

    @property
    def span_ms(self) -> int:
        """Total length of all windows in ms. A recorded value counts towards the rate for this
        time."""
        return self.window_count * self.window_ms

    @property
    def credit_ms(self) -> int:
        """Length in ms of all windows but one, or of the only window. A client may use its quota
        for this time in one burst."""
        return max(1, self.window_count - 1) * self.window_ms


class _Window:
    """Window of a rate. The last time and the total are set when the window is complete: until
    then, the rate has them, because a change of two objects for each value takes longer."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.total = 0.0


class SampledRate:
    """Rate per second of the values recorded within the last windows."""

    __slots__ = (
        "_complete_total", "_last_ms", "_measured_ms_min", "_newest_end_ms", "_shape", "_span_ms",
        "_total", "_window_ms", "_windows",
    )  # fmt: skip

    def __init__(self, shape: WindowShape) -> None:
        self._shape = shape
        self._measured_ms_min = (shape.window_count - 1) * shape.window_ms
        self._window_ms = shape.window_ms
        self._span_ms = shape.span_ms
        self._windows: deque[_Window] = deque()
        # Time at which the newest window ends, and time of the last value.
        self._newest_end_ms = self._last_ms = NO_WINDOW_MS
        # Sums of all values, and of those in complete windows.
        self._total = self._complete_total = 0.0

    def record(self, value: float, now_ms: int) -> None:
        """Record a value at the time `now_ms`. A negative value cancels an earlier value."""
        if now_ms >= self._newest_end_ms:
            self._begin_window(now_ms)
        self._last_ms = now_ms
        self._total += value

    def per_second(self, now_ms: int) -> float:
        """Return the rate per second over the windows that have not expired at `now_ms`."""
        measured_ms = self.measured_ms(now_ms)
        return self._total * 1_000 / measured_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return the delay, in ms, after which the rate falls to `bound` if no further value is
        recorded."""
        if self._total * 1_000 <= bound * self._measured_ms_min:
            return 0  # the usual case, even if old windows still counted
        measured_ms = self.measured_ms(now_ms)
        return throttle_ms(self._total * 1_000 / measured_ms, bound, measured_ms)

    def measured_ms(self, now_ms: int) -> int:
        """Return the length, in ms, of the period over which the rate is measured.

        It is at least the length of all windows but one. Otherwise the first requests of a client
        would count as a burst.
        """
        self._drop_old(now_ms)
        shape = self._shape
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        missing = shape.window_count - 1 - elapsed_ms // shape.window_ms
        return max(1, elapsed_ms + missing * shape.window_ms if missing > 0 else elapsed_ms)

    def _drop_old(self, now_ms: int) -> None:
        windows = self._windows
        oldest_ms = now_ms - self._span_ms
        if self._last_ms <= oldest_ms:
            windows.clear()
            self._total = self._complete_total = 0.0  # removes rounding errors
            self._newest_end_ms = NO_WINDOW_MS
            return
        while len(windows) > 1 and windows[0].last_ms <= oldest_ms:
            dropped = windows.popleft().total
            self._total -= dropped
            self._complete_total -= dropped

    def _begin_window(self, now_ms: int) -> None:
        self._drop_old(now_ms)
        windows = self._windows
        if windows:
            newest = windows[-1]
            newest.last_ms = self._last_ms
            newest.total = self._total - self._complete_total
            self._complete_total = self._total
        windows.append(_Window(now_ms))
        self._newest_end_ms = now_ms + self._window_ms


class SimpleRate(SampledRate):
    """A rate that is measured from its first recorded value on. The time before that value gives no
    credit for a burst.

    Replication is measured in this way. If its rate were measured over at least all windows but
    one, a limit would have no effect for the first ten seconds.
    """

    __slots__ = ()

    def __init__(self, shape: WindowShape) -> None:
        super().__init__(shape)
        self._measured_ms_min = shape.window_ms

    def measured_ms(self, now_ms: int) -> int:
        """Return the length, in ms, of the period over which the rate is measured: at least one
        window."""
        self._drop_old(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        return max(elapsed_ms, self._shape.window_ms)

    def excess_ms(self, bound: float, now_ms: int) -> int:
        """Return the delay, in ms, after which the rate falls to `bound` if no further value is
        recorded.

        The delay is `throttle_ms` plus the rest of the first window if that window is still in
        progress. The rate does not fall before the first window ends.
        """
        measured_ms = self.measured_ms(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else measured_ms
        until_ms = throttle_ms(self.per_second(now_ms), bound, measured_ms)
        return until_ms + measured_ms - elapsed_ms if until_ms else 0


class RateBetweenLooks:
    """Rate at which a counter increases, computed from samples of its value.

    The code that increments the counter does not need a clock. If two samples are further apart
    than `span_ms`, the rate is measured over the time between them.
    """

    def __init__(self, *, span_ms: int, begun_ms: int) -> None:
        """Create a rate that is measured over the last `span_ms`. The counter was 0 at the time
        `begun_ms`."""
        self._span_ms = span_ms
        self._apart_ms = max(1, span_ms // LOOKS_KEPT_MAX)
        self._looks = deque([(begun_ms, 0)])

    def per_second(self, count: int, now_ms: int) -> float:
        """Add a sample of the counter. Returns the counter's increase per second, measured over at
        least half of `span_ms`."""
        looks = self._looks
        while len(looks) > 1 and now_ms - looks[1][0] >= self._span_ms:
            looks.popleft()
        start_ms, before = looks[0]
        if now_ms - looks[-1][0] >= self._apart_ms:
            looks.append((now_ms, count))
        return (count - before) * 1_000 / max(now_ms - start_ms, self._span_ms // 2)


def throttle_ms(rate: float, bound: float, measured_ms: int) -> int:
    """Return the delay, in ms, after which a rate falls to its bound: (rate - bound) / bound *
    measured time.

    Returns 0 if the rate does not exceed the bound.
    """
    if rate <= bound:
        return 0
    return whole_ms((rate - bound) / bound * measured_ms if bound > 0 else float("inf"))


def whole_ms(delay_ms: float) -> int:
    """Return a delay in ms as an integer for a response, rounded and limited to
    `THROTTLE_MS_MAX`."""
    return round(min(delay_ms, THROTTLE_MS_MAX))
