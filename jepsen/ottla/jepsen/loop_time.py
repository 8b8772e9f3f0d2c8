"""Time of the running trio loop that a test can advance: deadlines and sleeps see it at once.

`TimeShift` is how far the loop is ahead of its own clock.  The first advance puts a clock around
trio's; it leans on `GLOBAL_RUN_CONTEXT.runner.clock`, which trio does not promise
(`test_loop_time.py` asserts that it is there).
"""

import math

import trio
import trio._core._run as trio_run
import trio.testing
from trio.abc import Clock as TrioClock

from ottla.node.clock_driver import RealClock

STEP_S = 1.0
"""The default of one step: shorter than the intervals at which clients and brokers hear of each
other, so that what is alive is still heard of in time.  Shorter takes longer."""
STEP_COUNT_MAX = 200
"""By default a long advance takes longer steps rather than more of them."""
QUIET_S = 0.001
"""Real time without a task that runs, after which a step has done what was due; threads and gRPC
may answer within it.  Longer makes each step slower."""
SETTLE_S_MAX = 0.05
"""Real time after which a step ends, for loops that are never quiet."""


class TimeShift:
    """How far a loop is ahead of its own clock."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    async def advance(self, seconds: float, step_s: float | None = None) -> None:
        """Advance the loop, step by step; let what is due happen after each.

        Raises ValueError if a time is negative or none.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds is {seconds!r}; it must be a time, 0 or more")
        step_s = max(STEP_S, seconds / STEP_COUNT_MAX) if step_s is None else step_s
        if not 0.001 <= step_s < math.inf:
            raise ValueError(f"step_s is {step_s!r}; it must be at least 0.001")
        runner = trio_run.GLOBAL_RUN_CONTEXT.runner
        if not isinstance(runner.clock, ShiftedClock):
            runner.clock = ShiftedClock(runner.clock, self)
        left_ms = round(seconds * 1_000)
        await settle()
        while left_ms > 0:
            step_ms = min(left_ms, round(step_s * 1_000))
            self.ahead_ms += step_ms
            left_ms -= step_ms
            await settle()


_shift: trio.lowlevel.RunVar[TimeShift] = trio.lowlevel.RunVar("ottla time shift")


def time_shift() -> TimeShift:
    """Return the shift of the running loop; clusters in one loop share it."""
    try:
        return _shift.get()
    except LookupError:
        shift = TimeShift()
        _shift.set(shift)
        return shift


class ShiftedClock(TrioClock):
    """The loop's clock, ahead by a shift."""

    def __init__(self, inner: TrioClock, shift: TimeShift) -> None:
        self._inner = inner
        self._shift = shift

    def start_clock(self) -> None:
        """Begin (trio calls this)."""

    def current_time(self) -> float:
        """Return the loop's time in seconds."""
        return self._inner.current_time() + self._shift.ahead_ms / 1_000

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the real seconds until a deadline."""
        return self._inner.deadline_to_sleep_time(deadline - self._shift.ahead_ms / 1_000)


class ShiftedNodeClock(RealClock):
    """The machine's clocks as nodes read them, ahead by a shift; satisfies the seam `Clock`."""

    def __init__(self, shift: TimeShift) -> None:
        self._shift = shift

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; never goes back."""
        return super().monotonic_ms() + self._shift.ahead_ms

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return super().wall_ms() + self._shift.ahead_ms


async def settle() -> None:
    """Wait until no task of the loop runs, or for a moment where some always does."""
    with trio.move_on_after(SETTLE_S_MAX):
        await trio.testing.wait_all_tasks_blocked(QUIET_S)
    await trio.lowlevel.checkpoint()
