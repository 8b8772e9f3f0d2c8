"""The stopwatch of the event loop that serves connections.  Pure: a driver sets a real one."""

from collections.abc import Callable


class LoopClock:
    """Nanoseconds of the loop's stopwatch: now, and when its current turn began."""

    __slots__ = ("now_ns", "turn_ns")

    def __init__(self) -> None:
        self.now_ns: Callable[[], int] = int
        """`time.perf_counter_ns` where sockets are served; `int()`, always 0, in simulated time."""
        self.turn_ns = 0
        """Start of the current turn, before it looked for what its connections have."""
