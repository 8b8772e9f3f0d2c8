"""Work of a shard that takes longer than one turn may, done a step at a time.  Pure.

Each piece of work is a generator; a step takes it to its next yield, some milliseconds later.
Pieces take turns, so a small one does not wait for a large one's end.  Between two steps requests
are served: whatever a piece read before a yield may be another thing after it.
"""

from collections import deque
from collections.abc import Iterator

from ottla.broker.groups.effects import Instant

STEPS_AT_ONCE = 16
"""Steps that a piece may take where it is begun: about ten milliseconds.  With fewer, small groups
wait for what could be told at once; with more, the loop is held for longer."""


class Backlog:
    """The pieces of work that are not done yet."""

    __slots__ = ("_open", "now")

    def __init__(self) -> None:
        self._open: deque[Iterator[None]] = deque()
        self.now = Instant(0, 0)
        """The time of the step under way."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, work: Iterator[None], now: Instant) -> bool:
        """Take the first steps; keep what is left.  Return whether nothing is."""
        self.now = now
        for _ in range(STEPS_AT_ONCE):
            try:
                next(work)
            except StopIteration:
                return True
        self._open.append(work)
        return False

    def step(self, now: Instant) -> None:
        """Take one step of the piece whose turn it is."""
        self.now = now
        work = self._open.popleft()
        try:
            next(work)
        except StopIteration:
            return
        self._open.append(work)
