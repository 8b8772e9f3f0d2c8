"""Search for a sequential order of concurrent calls that an object allows (linearizability).

The module is pure. Wing and Gong's search with Lowe's cache. Every call that may come next is tried
in turn. A set of completed calls is never tried twice with the same state. A read that fits the
state is placed at once, since it cannot prevent any other call.

A call that never returned may come anywhere after its start, or not at all. Such calls are tried
last, and only if they change the state. The search is exact but may be long: it stops after
`steps_max` steps, without a result.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from ottla.jepsen.checkers.verdict import Validity

State = TypeVar("State", bound=Hashable)
Asked = TypeVar("Asked")

Step: TypeAlias = Callable[[State, Asked], Sequence[State]]
"""Function that receives the state of an object and a call, and returns the states to which the
call may lead."""

NEVER = 1 << 62
"""Value of `ObjectCall.end` for a call that did not return."""

WAYS_MAX = 1 << 10
"""Upper bound on the number of states of an object to which one call may lead. The search asserts
that no call exceeds it."""

ALL_TRIED = 1 << 62
"""Value in place of the number of tried candidates, after a read was placed in the order. No other
candidate needs to be tried at the place of the read."""


@dataclass(frozen=True, slots=True)
class ObjectCall(Generic[Asked]):
    """One call to a concurrent object, from its invocation to its return."""

    begin: int
    end: int
    """Position of the call's end in the history, or NEVER if the call did not return. Such a call
    may never take effect."""
    asked: Asked
    """The call's argument, and its result if the call has returned. The function `step` receives
    this value."""
    is_read: bool = False
    """True if the call never changes the object's state. The search then places the call as soon as
    it fits."""


@dataclass(frozen=True, slots=True)
class Linearization(Generic[State]):
    """Result of a search for a sequential order of concurrent calls."""

    is_linearizable: Validity
    order: tuple[int, ...]
    """The calls in sequential order, as indexes into the list that was searched. If no order has
    all calls, this is the longest order found."""
    states: tuple[State, ...]
    """The state of the object after each call of the sequential order."""
    stuck: tuple[int, ...]
    """Calls at which the search failed, if no order contains all calls: one of these calls had to
    be next, but none of them fits. Empty if there is an order."""
    step_count: int


def linearize(
    calls: Sequence[ObjectCall[Asked]],
    initial: State,
    step: Step[State, Asked],
    *,
    steps_max: int,
) -> Linearization[State]:
    """Search for a sequential order of concurrent calls to an object, and return the result.

    `step` returns the states to which a call may lead, or no state if the call is impossible in
    that state. The search stops without a result after `steps_max` steps.
    """
    return _Search(calls, initial, step, steps_max).run()


Seen: TypeAlias = dict[tuple[int, State], list[int]]
"""Sets of unreturned calls that the search has already tried, by (completed calls, state of the
object)."""


class _Search(Generic[State, Asked]):
    """State of one search for a sequential order. It includes a linked list of the starts and ends
    of all calls that are not placed in the order yet."""

    def __init__(
        self,
        calls: Sequence[ObjectCall[Asked]],
        initial: State,
        step: Step[State, Asked],
        steps_max: int,
    ) -> None:
        self._calls = calls
        self._initial = initial
        self._step = step
        self._steps_max = steps_max
        moments = [(call.begin, 0, place) for place, call in enumerate(calls) if call.end != NEVER]
        moments += [(call.end, 1, place) for place, call in enumerate(calls) if call.end != NEVER]
        moments.sort()
        # Entry 0 is the list's head, entry len(moments) + 1 its end.
        self._call_of = [-1, *(place for _, _, place in moments), -1]
        self._is_end = [False, *(bool(is_end) for _, is_end, _ in moments), True]
        self._next = list(range(1, len(moments) + 3))
        self._before = list(range(-1, len(moments) + 1))
        self._begin_entry: dict[int, int] = {}
        self._end_entry: dict[int, int] = {}
        for entry in range(1, len(moments) + 1):
            entries = self._end_entry if self._is_end[entry] else self._begin_entry
            entries[self._call_of[entry]] = entry
        self._open = sorted(
            (place for place, call in enumerate(calls) if call.end == NEVER),
            key=lambda place: calls[place].begin,
        )
        self._open_mask = sum(1 << place for place in self._open)

    def run(self) -> Linearization[State]:
        """Search until a sequential order is found, no order is possible, or the steps are used up.
        Returns the result."""
        state = self._initial
        done = 0
        waiting = len(self._begin_entry)
        stack: list[tuple[int, State, int]] = []
        """The calls placed in the order so far, each with the state before it and the number of
        candidates already tried at its place."""
        seen: Seen[State] = {}
        best: list[tuple[int, State, int]] = []
        steps = 0
        tried = 0
        while waiting:
            found = self._candidate(state, done, tried, seen)
            steps += 1
            if steps > self._steps_max:
                return self._outcome("unknown", best, stack, steps)
            if found is not None:
                place, after, tried = found
                stack.append((place, state, tried))
                state = after
                done |= 1 << place
                if place in self._begin_entry:
                    self._lift(place)
                    waiting -= 1
                tried = 0
                continue
            if len(stack) > len(best):
                best = list(stack)
            if not stack:
                return self._outcome(False, best, stack, steps)
            place, state, tried = stack.pop()
            done &= ~(1 << place)
            if place in self._begin_entry:
                self._unlift(place)
                waiting += 1
        return self._outcome(True, stack, stack, steps)

    def _candidate(
        self, state: State, done: int, tried: int, seen: Seen[State]
    ) -> tuple[int, State, int] | None:
        """Return the next call to try at the current place of the order, as (call, state after it,
        number of candidates tried). Returns None if all calls were tried."""
        candidates, open_from = self._candidates(done)
        if tried == 0:
            for place in candidates:
                call = self._calls[place]
                if call.is_read and self._step(state, call.asked):
                    # A read that fits excludes no later call. So if placing it fails, every other
                    # choice fails too.
                    return self._if_new(place, state, done, ALL_TRIED, seen)
        first, first_way = divmod(tried, WAYS_MAX)
        for looked_at in range(first, len(candidates)):
            place = candidates[looked_at]
            call = self._calls[place]
            ways = () if call.is_read else self._step(state, call.asked)
            assert len(ways) < WAYS_MAX
            for way in range(first_way if looked_at == first else 0, len(ways)):
                if looked_at >= open_from and ways[way] == state:
                    continue
                next_way = looked_at * WAYS_MAX + way + 1
                found = self._if_new(place, ways[way], done, next_way, seen)
                if found is not None:
                    return found
        return None

    def _candidates(self, done: int) -> tuple[list[int], int]:
        """Return the indexes of the calls that may be next in the order. The second result is the
        position, in this list, of the first call that never returned."""
        found: list[int] = []
        entry = self._next[0]
        while not self._is_end[entry]:
            found.append(self._call_of[entry])
            entry = self._next[entry]
        first_end = self._calls[self._call_of[entry]].end if self._call_of[entry] >= 0 else NEVER
        open_from = len(found)
        for place in self._open:
            if self._calls[place].begin > first_end:
                break
            if not done >> place & 1:
                found.append(place)
        return found, open_from

    def _if_new(
        self, place: int, after: State, done: int, tried: int, seen: Seen[State]
    ) -> tuple[int, State, int] | None:
        done |= 1 << place
        spent = done & self._open_mask
        before = seen.setdefault((done ^ spent, after), [])
        # An earlier path reached the same set with fewer of the calls that never returned, so it
        # has more of them left to try.
        if any(fewer & spent == fewer for fewer in before):
            return None
        before.append(spent)
        return place, after, tried

    def _lift(self, place: int) -> None:
        for entry in (self._begin_entry[place], self._end_entry[place]):
            before, after = self._before[entry], self._next[entry]
            self._next[before], self._before[after] = after, before

    def _unlift(self, place: int) -> None:
        for entry in (self._end_entry[place], self._begin_entry[place]):
            self._next[self._before[entry]] = self._before[self._next[entry]] = entry

    def _after(self, last: tuple[int, State, int]) -> State:
        """Return the state of the object after `last`, the last call placed in an order."""
        place, state, tried = last
        ways = self._step(state, self._calls[place].asked)
        return ways[0] if tried == ALL_TRIED else ways[tried % WAYS_MAX - 1]

    def _outcome(
        self,
        is_linearizable: Validity,
        best: list[tuple[int, State, int]],
        stack: list[tuple[int, State, int]],
        step_count: int,
    ) -> Linearization[State]:
        longest = best if len(best) >= len(stack) else stack
        order = tuple(place for place, _, _ in longest)
        # Each entry has the state before its call.
        states = [state for _, state, _ in longest[1:]]
        if longest:
            states.append(self._after(longest[-1]))
        in_order = set(order)
        left = [place for place in self._begin_entry if place not in in_order]
        first_end = min((self._calls[place].end for place in left), default=NEVER)
        stuck = tuple(place for place in left if self._calls[place].begin <= first_end)
        return Linearization(is_linearizable, order, tuple(states), stuck, step_count)
