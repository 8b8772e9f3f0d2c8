"""Keeps what strangers do on the network from filling the log.  Pure: the time comes in."""

LINES_PER_WINDOW_MAX = 10
"""Lines let through per window: enough to see what goes on, too few to fill a disk."""

WINDOW_MS = 10_000


class LogLimiter:
    """Lets a few lines a window through and counts the rest."""

    __slots__ = ("_line_count", "_lines_max", "_suppressed_count", "_window_end_ms")

    def __init__(self, lines_max: int = LINES_PER_WINDOW_MAX) -> None:
        self._lines_max = lines_max
        self._window_end_ms = 0
        self._line_count = 0
        self._suppressed_count = 0

    def admit(self, now_ms: int) -> int | None:
        """Return None to stay silent, else how many lines were kept back before this one."""
        if now_ms >= self._window_end_ms:
            self._window_end_ms = now_ms + WINDOW_MS
            self._line_count = 0
        if self._line_count == self._lines_max:
            self._suppressed_count += 1
            return None
        self._line_count += 1
        suppressed_count, self._suppressed_count = self._suppressed_count, 0
        return suppressed_count
