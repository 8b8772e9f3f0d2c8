"""Monotonic clock of the event loop that serves connections.  Pure: a driver sets a real one."""

from collections.abc import Callable


class LoopClock:
    """Clock of the event loop: the current time, and the time at which the current iteration
    started, in nanoseconds."""

    __slots__ = ("now_ns", "turn_ns")

    def __init__(self) -> None:
        self.now_ns: Callable[[], int] = int
        """`time.perf_counter_ns` in a process with sockets; `int()`, always 0, in simulated
        time."""
        self.turn_ns = 0
        """Time at which the current iteration started, before it polled its connections."""
