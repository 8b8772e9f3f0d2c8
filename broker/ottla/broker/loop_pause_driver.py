"""Measures how long the loop is held: the longest stretch between two waits for I/O.

Whatever holds it (a handler, a metadata load, the garbage collector) delays every client, so it is
a metric of its own.
"""

import time

from trio.abc import Instrument

NANOSECONDS_PER_MS = 1_000_000


class LoopPauseMeter(Instrument):
    """A trio instrument; `trio.lowlevel.add_instrument` it in the loop to be measured."""

    def __init__(self) -> None:
        self._started_ns = time.perf_counter_ns()
        self._longest_ns = 0
        self._longest_ever_ns = 0

    def after_io_wait(self, timeout: float) -> None:
        """Tasks begin to run."""
        self._started_ns = time.perf_counter_ns()

    def before_io_wait(self, timeout: float) -> None:
        """Every task that could run has run."""
        held_ns = time.perf_counter_ns() - self._started_ns
        if held_ns > self._longest_ns:
            self._longest_ns = held_ns

    @property
    def longest_ever_ms(self) -> float:
        """The longest pause since the start."""
        return max(self._longest_ns, self._longest_ever_ns) / NANOSECONDS_PER_MS

    def take_longest_ms(self) -> float:
        """Return the longest pause since the last call, and begin anew."""
        longest_ns, self._longest_ns = self._longest_ns, 0
        self._longest_ever_ns = max(self._longest_ever_ns, longest_ns)
        return longest_ns / NANOSECONDS_PER_MS
