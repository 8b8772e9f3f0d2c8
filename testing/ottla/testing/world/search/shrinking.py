"""A limit for the time that Hypothesis spends to shrink a failing example.

Hypothesis shrinks for up to five minutes of wall time. Its last minutes seldom remove a fault, and
a user waits for them. After the limit, runs are rejected, so that the search for simpler failures
ends at once with the simplest failure so far.
"""

import sys
import time
from types import FrameType

import hypothesis
from hypothesis.internal.conjecture.engine import ConjectureRunner

from ottla.testing.world.plans import FaultSchedule, WorldPlan

SHRINK_CPU_S = 40.0
"""Maximum CPU seconds of this process for shrinking, counted from the first failure of a test."""


class ShrinkLimit:
    """Limit on the time of shrinking in Hypothesis's current search. Only one search runs at a
    time."""

    def __init__(self) -> None:
        self._engine: ConjectureRunner | None = None
        """Engine of the search whose first failure was noted."""
        self._first_s = 0.0
        """CPU time of this process at the first failure of the search."""
        self._failing: set[str] = set()
        """Plans and faults that failed. Hypothesis repeats some of them, and they must fail
        again."""

    def check(self, plan: WorldPlan, faults: FaultSchedule) -> None:
        """Reject the current example of Hypothesis if shrinking has lasted long enough. Raises
        UnsatisfiedAssumption of Hypothesis."""
        if (
            self._engine is not None
            and time.process_time() > self._first_s + SHRINK_CPU_S
            and repr((plan, faults)) not in self._failing
            and _engine() is self._engine
        ):
            hypothesis.reject()

    def note_failure(self, plan: WorldPlan, faults: FaultSchedule) -> None:
        """Record that the current example of Hypothesis failed. Does nothing outside of a
        search."""
        engine = _engine() if hypothesis.currently_in_test_context() else None
        if engine is None:
            return
        if engine is not self._engine:
            self._engine, self._first_s = engine, time.process_time()
            self._failing.clear()
        self._failing.add(repr((plan, faults)))


SHRINK_LIMIT = ShrinkLimit()


def _engine() -> ConjectureRunner | None:
    """Return the engine of Hypothesis that called this function through a test, or None. It is
    found on the stack, because Hypothesis has no interface for it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, ConjectureRunner):
            return owner
        frame = frame.f_back
    return None
