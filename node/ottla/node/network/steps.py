"""Steps that build costly responses: long work is split so that other tasks run in between.

Pure. The handler of a request with many elements returns a generator. The generator yields after
every bounded amount of work, and finally returns the result of the handler. `begun` runs the first
step at once, so that a small request is answered like any other. The server runs the remaining
steps, one per event-loop iteration over all requests together. State may have changed between two
steps, so a generator checks again after each yield.
"""

from collections.abc import Callable, Coroutine, Generator, Hashable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Steps: TypeAlias = Generator[None, None, T]
"""Generator that yields between the steps of a costly computation and returns its result."""

STEP_COST = 250
"""Cost at which a step of a long computation ends. One entry of a response costs 1, which takes
some microseconds. With a larger value, the event loop is blocked for longer. With a smaller one,
switching between steps takes more time."""

VALUES_PER_STEP = 5_000
"""Maximum number of values (integers or names) that one step of a long computation processes.
Such a step takes about 1 ms."""


class ThreadWork(Generic[T]):
    """Pair of functions: the first runs in a thread, without access to the event loop's state; the
    second is called with its result on the event loop."""

    __slots__ = ("then", "work")

    def __init__(self, work: Callable[[], T], then: Callable[[T], Any]) -> None:
        self.work = work
        self.then = then
        """Function that is called on the event loop with the result of the thread's work. It
        returns the result of a request handler."""


class StepPace:
    """Counter of the work done in the current step of a long computation, which decides when the
    step ends."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEP_COST

    def is_due(self, cost: int = 1) -> bool:
        """Add the cost of work that the current step has done. Returns whether the step should end
        now."""
        self._left -= cost
        if self._left > 0:
            return False
        self._left = STEP_COST
        return True


def paced(work: Generator[None, None, T], pace: StepPace) -> Steps[T]:
    """Run the generator `work`, which yields very often, but yield only when a step of `pace`
    should end. Returns the result of `work`."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        if pace.is_due():
            yield


def add_in_steps(known: dict[K, None], values: Sequence[K], pace: StepPace) -> Steps[None]:
    """Add values to `known`, a dict that serves as an ordered set, in several steps if there are
    many values."""
    for at in range(0, max(1, len(values)), VALUES_PER_STEP):
        part = values[at : at + VALUES_PER_STEP]
        known.update(dict.fromkeys(part))
        if pace.is_due(1 + len(part) * STEP_COST // VALUES_PER_STEP):
            yield


def used_up(values: list[T]) -> Iterator[T]:
    """Yield each value of a list, and remove the value from the list.

    The memory of a large request's elements is therefore freed step by step, not all in the last
    step.
    """
    values.reverse()
    while values:
        yield values.pop()


def is_steps(pending: object) -> TypeGuard[Steps[Any]]:
    """Return whether a handler's result is a `Steps` generator, not a coroutine. Checking for the
    generator's methods is not enough, since a coroutine in compiled code also has these methods."""
    return isinstance(pending, Generator) and not isinstance(pending, Coroutine)


def begun(steps: Steps[T]) -> T | Steps[T]:
    """Run the first step of a generator of steps. Returns the generator's result if no step is
    left, or else the remaining steps."""
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    return steps


def run_through(steps: Steps[T]) -> T:
    """Run all steps of a generator in one call, for tests and small work. Returns the result of the
    steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def finished(result: Any) -> Any:
    """Finish the result of a request handler in one call, whether it is a coroutine, steps or a
    response, and return the response. For tests."""
    while True:
        if isinstance(result, ThreadWork):
            result = result.then(result.work())
        elif is_steps(result):
            result = run_through(result)
        elif isinstance(result, Coroutine):
            result = await result
        else:
            return result


Answer: TypeAlias = Steps[Any]
"""Generator of a request handler's steps, which returns the handler's result (see
`dispatch.HandlerResult`)."""
