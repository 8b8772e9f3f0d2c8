"""Measures the rate and latency of the recent writes to a share coordinator. Pure."""

WINDOW_MS = 30_000
"""Length of a measurement window in milliseconds. Metrics of recent writes cover the current and
the previous window, as in Kafka."""


class _Window:
    __slots__ = ("begun_ms", "count", "max_ms", "sum_ms")

    def __init__(self, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self.count = 0
        self.sum_ms = 0
        self.max_ms = 0


class RecentWrites:
    """Numbers and durations of recent writes to a share coordinator, in the current and the
    previous window of `WINDOW_MS`."""

    __slots__ = ("_current", "_previous", "total")

    def __init__(self, now_ms: int) -> None:
        self._current = self._previous = _Window(now_ms)
        self.total = 0
        """Number of writes to the share coordinator so far."""

    def note(self, begun_ms: int, now_ms: int) -> None:
        """Record the duration of a write to the share coordinator that has just been answered."""
        self._advance(now_ms)
        self.total += 1
        window, took_ms = self._current, now_ms - begun_ms
        window.count += 1
        window.sum_ms += took_ms
        window.max_ms = max(window.max_ms, took_ms)

    def rate(self, now_ms: int) -> float:
        """Return the rate of recent writes to the share coordinator, per second."""
        windows = self._windows(now_ms)
        since_ms = min(window.begun_ms for window in windows)
        count = sum(window.count for window in windows)
        return count * 1_000 / max(1_000, now_ms - since_ms)

    def average_ms(self, now_ms: int) -> float:
        """Return the mean duration in milliseconds of recent writes to the share coordinator, from
        the request to its answer."""
        windows = self._windows(now_ms)
        count = sum(window.count for window in windows)
        return sum(window.sum_ms for window in windows) / max(1, count)

    def max_ms(self, now_ms: int) -> int:
        """Return the longest duration in milliseconds of recent writes to the share coordinator,
        from the request to its answer."""
        return max(window.max_ms for window in self._windows(now_ms))

    def _windows(self, now_ms: int) -> set[_Window]:
        self._advance(now_ms)
        return {self._previous, self._current}

    def _advance(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._current.begun_ms
        if elapsed_ms >= 2 * WINDOW_MS:
            self._current = self._previous = _Window(now_ms)
        elif elapsed_ms >= WINDOW_MS:
            self._previous = self._current
            self._current = _Window(self._current.begun_ms + WINDOW_MS)
