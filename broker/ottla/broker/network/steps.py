"""Costly answers in steps: what would hold the loop is cut where other tasks may have their turn.

Pure.  A handler of a request that may name much is a generator: it yields after every bounded bit
of work and returns what a handler returns.  `begun` does the first step at once, so that a small
request is answered like any other; what is left is given to the connection's host, which does one
step in a turn of the loop, over all requests together.  Between two steps the world may have
changed: whoever yields looks again at what it holds.
"""

from collections.abc import Callable, Coroutine, Generator, Hashable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Steps: TypeAlias = Generator[None, None, T]
"""Work in steps, and what it comes to."""

STEP_COST = 250
"""How much is done in one step: an entry of an answer costs 1, some microseconds.  Higher holds the
loop for longer, lower wastes more on switching."""

VALUES_PER_STEP = 5_000
"""Numbers or names that are compared with others, and no more, in one step: about a millisecond."""


class Apart(Generic[T]):
    """Work that touches nothing of the loop's, to be done elsewhere, and what goes on with it."""

    __slots__ = ("then", "work")

    def __init__(self, work: Callable[[], T], then: Callable[[T], Any]) -> None:
        self.work = work
        self.then = then
        """Called on the loop with what the work came to; returns what a handler returns."""


class StepPace:
    """Counts work, and says when a step has done enough."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEP_COST

    def is_due(self, cost: int = 1) -> bool:
        """Count work that was done; return whether the step should end here."""
        self._left -= cost
        if self._left > 0:
            return False
        self._left = STEP_COST
        return True


def keep_each(known: dict[K, None], values: Sequence[K], pace: StepPace) -> Steps[None]:
    """Add values to a dict that is an ordered set, very many of them in several steps."""
    for at in range(0, max(1, len(values)), VALUES_PER_STEP):
        part = values[at : at + VALUES_PER_STEP]
        known.update(dict.fromkeys(part))
        if pace.is_due(1 + len(part) * STEP_COST // VALUES_PER_STEP):
            yield


def used_up(values: list[T]) -> Iterator[T]:
    """Yield each value of a list, and leave the list empty.

    What a large request names is freed step by step so, not all of it in the last step.
    """
    values.reverse()
    while values:
        yield values.pop()


def is_steps(pending: object) -> TypeGuard[Steps[Any]]:
    """Return whether a handler left steps: a compiled coroutine has all that a generator has."""
    return isinstance(pending, Generator) and not isinstance(pending, Coroutine)


def begun(steps: Steps[T]) -> T | Steps[T]:
    """Do the first step; return the result if that was all, else what is left."""
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    return steps


def run_through(steps: Steps[T]) -> T:
    """Do all steps at once, for tests and for what is small."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def finished(result: Any) -> Any:
    """Return what a handler's result comes to, all of it done here and now, for tests."""
    while True:
        if isinstance(result, Apart):
            result = result.then(result.work())
        elif is_steps(result):
            result = run_through(result)
        elif isinstance(result, Coroutine):
            result = await result
        else:
            return result


Answer: TypeAlias = Steps[Any]
"""The steps of a handler; they come to what a handler returns."""
