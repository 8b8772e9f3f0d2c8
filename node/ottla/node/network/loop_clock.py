"""Monotonic clock of the event loop that serves connections. Pure: a driver provides the source of
time."""

from collections.abc import Callable


class LoopClock:
    """Clock of the event loop: the current time, and the time when the current iteration started,
    in nanoseconds."""

    __slots__ = ("now_ns", "turn_ns")

    def __init__(self) -> None:
        self.now_ns: Callable[[], int] = int
        """Source of the current time in nanoseconds: `time.perf_counter_ns` in a process with
        sockets, or `int()`, always 0, in simulated time."""
        self.turn_ns = 0
        """Time in nanoseconds at which the current iteration of the event loop started. Connections
        are polled afterwards."""
