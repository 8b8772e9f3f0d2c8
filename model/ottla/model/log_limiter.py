"""Limit of the log lines that clients on the network can cause. Pure: the time is an argument."""

LINES_PER_WINDOW_MAX = 10
"""Number of lines that are logged per window. A smaller number hides what is happening; a larger
number may fill a disk."""

WINDOW_MS = 10_000


class LogLimiter:
    """A limiter that admits a limited number of log lines per time window and counts the suppressed
    ones."""

    __slots__ = ("_line_count", "_lines_max", "_suppressed_count", "_window_end_ms")

    def __init__(self, lines_max: int = LINES_PER_WINDOW_MAX) -> None:
        self._lines_max = lines_max
        self._window_end_ms = 0
        self._line_count = 0
        self._suppressed_count = 0

    def admit(self, now_ms: int) -> int | None:
        """Return whether a log line may be logged now: None if not, otherwise the number of lines
        suppressed before it."""
        if now_ms >= self._window_end_ms:
            self._window_end_ms = now_ms + WINDOW_MS
            self._line_count = 0
        if self._line_count == self._lines_max:
            self._suppressed_count += 1
            return None
        self._line_count += 1
        suppressed_count, self._suppressed_count = self._suppressed_count, 0
        return suppressed_count
