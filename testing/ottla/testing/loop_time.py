"""Virtual time of the running trio event loop. A test advances the time, and sleeps and deadlines
end earlier accordingly.

`TimeShift` is the difference between the event loop's time and trio's own clock. The first advance
replaces trio's clock by a shifted one, through `GLOBAL_RUN_CONTEXT.runner.clock`. This attribute is
not part of trio's public interface (`test_loop_time.py` asserts that it exists).
"""

import math

import trio
import trio._core._run as trio_run
from trio.abc import Clock as TrioClock

from ottla.node.clock_driver import RealClock

STEP_S = 1.0
"""Default length, in seconds, of one step in which a test advances the time. It is shorter than the
heartbeat intervals of clients and brokers, so that live members are not removed from their groups.
With a smaller step, a long advance takes longer."""
STEP_COUNT_MAX = 200
"""Default maximum number of steps in which one call of `TimeShift.advance` advances the time. A
longer advance uses longer steps."""
QUIET_S = 0.001
"""Real time, in seconds, for which the trio event loop must be idle before a step counts as
complete. Threads and gRPC must respond within this time. With a larger value, each step takes
longer."""
SETTLE_S_MAX = 0.05
"""Maximum duration, in real seconds, of one step if the trio event loop never becomes idle."""


class TimeShift:
    """The difference between the time of a trio event loop and trio's own clock. Tests increase
    it."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    async def advance(self, seconds: float, step_s: float | None = None) -> None:
        """Advance the event loop's time by `seconds`, in steps of `step_s`. After each step, wait
        until the work that has become due is done.

        Raises ValueError if a time is negative or not finite.
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
    """Return the time shift of the running trio event loop. All clusters in one event loop share
    it."""
    try:
        return _shift.get()
    except LookupError:
        shift = TimeShift()
        _shift.set(shift)
        return shift


class ShiftedClock(TrioClock):
    """A trio clock that adds a time shift to another trio clock."""

    def __init__(self, inner: TrioClock, shift: TimeShift) -> None:
        self._inner = inner
        self._shift = shift

    def start_clock(self) -> None:
        """Do nothing when trio calls this method at the start of a run."""

    def current_time(self) -> float:
        """Return the shifted time in seconds."""
        return self._inner.current_time() + self._shift.ahead_ms / 1_000

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the real time, in seconds, until a deadline in shifted time."""
        return self._inner.deadline_to_sleep_time(deadline - self._shift.ahead_ms / 1_000)


class ShiftedNodeClock(RealClock):
    """The machine's clocks plus a time shift, for use by nodes. Implements the interface
    `Clock`."""

    def __init__(self, shift: TimeShift) -> None:
        self._shift = shift

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start.  The value never decreases."""
        return super().monotonic_ms() + self._shift.ahead_ms

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return super().wall_ms() + self._shift.ahead_ms


async def settle() -> None:
    """Wait until the trio event loop has been idle for `QUIET_S`, but at most for
    `SETTLE_S_MAX`."""
    # Imported with the first advance: trio.testing imports pytest wherever that is installed, which
    # takes as long as the start of a cluster.
    import trio.testing

    with trio.move_on_after(SETTLE_S_MAX):
        await trio.testing.wait_all_tasks_blocked(QUIET_S)
    await trio.lowlevel.checkpoint()
