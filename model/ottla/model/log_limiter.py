"""Limit on the log lines that clients on the network can cause, per time window of 10 s. Further
lines are counted and not logged. Pure: the current time is an argument."""

LINES_PER_WINDOW_MAX = 10
"""Maximum number of lines that are logged per time window. A smaller number hides events. With a
larger number, a client may fill a disk."""

WINDOW_MS = 10_000
"""Length in milliseconds of the time window to which the limit applies."""


class LogLimiter:
    """Limiter of log lines. It admits a fixed number of lines per time window, and counts the
    suppressed lines."""

    __slots__ = ("_line_count", "_lines_max", "_suppressed_count", "_window_end_ms")

    def __init__(self, lines_max: int = LINES_PER_WINDOW_MAX) -> None:
        self._lines_max = lines_max
        self._window_end_ms = 0
        self._line_count = 0
        self._suppressed_count = 0

    def admit(self, now_ms: int) -> int | None:
        """Decide whether a log line may be logged at `now_ms`. Returns the number of lines
        suppressed since the last admitted line, or None if this line must be suppressed as well."""
        if now_ms >= self._window_end_ms:
            self._window_end_ms = now_ms + WINDOW_MS
            self._line_count = 0
        if self._line_count == self._lines_max:
            self._suppressed_count += 1
            return None
        self._line_count += 1
        suppressed_count, self._suppressed_count = self._suppressed_count, 0
        return suppressed_count
