"""Backlog of a coordinator's shard: work that takes longer than one event-loop iteration, done in
steps. Pure.

Each task is a generator. One step runs a task to its next yield, which takes a few milliseconds.
Tasks take turns, so a small task does not wait for a large one. Requests are served between two
steps, so a value that was read before a yield may have changed after it.
"""

from collections import deque
from collections.abc import Iterator

from ottla.broker.coordinators.effects import Instant

STEPS_AT_ONCE = 16
"""Number of steps that a coordinator runs without a pause when a piece of work begins. Sixteen
steps take about ten milliseconds. A smaller value delays small groups that could be answered at
once. A larger value blocks the event loop longer."""


class Backlog:
    """Unfinished tasks of a coordinator's shard (its state in one topic partition). The tasks run
    alternately, one step each."""

    __slots__ = ("now", "open")

    def __init__(self) -> None:
        self.open: deque[Iterator[None]] = deque()
        """Unfinished tasks, the next one to run first."""
        self.now = Instant(0, 0)
        """Time at which the current step of work runs, on the monotonic clock and the wall
        clock."""

    def begin(self, work: Iterator[None], now: Instant) -> bool:
        """Run the first steps of a task, and store the rest for `step`. Returns True if the task is
        finished."""
        self.now = now
        for _ in range(STEPS_AT_ONCE):
            try:
                next(work)
            except StopIteration:
                return True
        self.open.append(work)
        return False

    def step(self, now: Instant) -> None:
        """Run one step of one unfinished task. The tasks take turns."""
        self.now = now
        work = self.open.popleft()
        try:
            next(work)
        except StopIteration:
            return
        self.open.append(work)
