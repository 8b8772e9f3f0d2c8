"""Searches for one order of concurrent calls that a sequential object allows.

Pure.  Wing and Gong's search with Lowe's memory: calls that may come first are tried in turn; a
set of calls done with the state they led to is never tried twice.  A read that fits comes at once,
since nothing else can be harmed by it.  A call that never returned may come anywhere after its
beginning, or not at all; so those are tried last, and only where they change something.  The search
is exact but may be long: it stops after so many steps, and then
nothing is known.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from ottla.jepsen.checkers.verdict import Validity

State = TypeVar("State", bound=Hashable)
Asked = TypeVar("Asked")

Step: TypeAlias = Callable[[State, Asked], Sequence[State]]
"""From a state and a call to the states after it."""

NEVER = 1 << 62
"""The end of a call that did not return."""

WAYS_MAX = 1 << 10
"""States that one call may lead to, at most."""

ALL_TRIED = 1 << 62
"""No other candidate is worth a try in this place."""


@dataclass(frozen=True, slots=True)
class ObjectCall(Generic[Asked]):
    """One call of the object, between two moments."""

    begin: int
    end: int
    """NEVER when it did not return: then it may also never happen."""
    asked: Asked
    """What was asked and, if it returned, answered: what `step` understands."""
    is_read: bool = False
    """It changes no state, ever: where it fits it may as well come at once."""


@dataclass(frozen=True, slots=True)
class Linearization(Generic[State]):
    """What a search found."""

    is_linearizable: Validity
    order: tuple[int, ...]
    """The calls in order, as places in the list given; the longest order found if there is none."""
    states: tuple[State, ...]
    """The state after each of them."""
    stuck: tuple[int, ...]
    """The calls that returned first of those that do not fit behind that order."""
    step_count: int


def linearize(
    calls: Sequence[ObjectCall[Asked]],
    initial: State,
    step: Step[State, Asked],
    *,
    steps_max: int,
) -> Linearization[State]:
    """Search an order.

    `step` returns the states that a call may lead to, none when it is impossible there.
    """
    return _Search(calls, initial, step, steps_max).run()


Seen: TypeAlias = dict[tuple[int, State], list[int]]
"""By the returned calls done and the state: with which of the calls that never returned."""


class _Search(Generic[State, Asked]):
    """The calls not yet in order are a linked list of their beginnings and ends."""

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
        """Search until there is an order, there can be none, or it takes too long."""
        state = self._initial
        done = 0
        waiting = len(self._begin_entry)
        stack: list[tuple[int, State, int]] = []
        """Each call in order, the state before it, and how far candidates were tried then."""
        seen: Seen[State] = {}
        best: list[tuple[int, State, int]] = []
        steps = 0
        tried = 0
        while waiting:
            found = self._candidate(state, done, tried, seen)
            steps += 1
            if steps > self._steps_max:
                return self._told("unknown", best, stack, steps)
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
                return self._told(False, best, stack, steps)
            place, state, tried = stack.pop()
            done &= ~(1 << place)
            if place in self._begin_entry:
                self._unlift(place)
                waiting += 1
        return self._told(True, stack, stack, steps)

    def _candidate(
        self, state: State, done: int, tried: int, seen: Seen[State]
    ) -> tuple[int, State, int] | None:
        """Return (call, state after it, how far was tried then) of the next one worth a try."""
        candidates, open_from = self._candidates(done)
        if tried == 0:
            for place in candidates:
                call = self._calls[place]
                if call.is_read and self._step(state, call.asked):
                    # Nothing is lost by reading now; so if that was tried, all was.
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
        """Return the calls that may come next, and where those begin that never returned."""
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
        # Who got as far with fewer calls that may never have happened has more left to try.
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
        """Return the state after the last call of an order."""
        place, state, tried = last
        ways = self._step(state, self._calls[place].asked)
        return ways[0] if tried == ALL_TRIED else ways[tried % WAYS_MAX - 1]

    def _told(
        self,
        is_linearizable: Validity,
        best: list[tuple[int, State, int]],
        stack: list[tuple[int, State, int]],
        step_count: int,
    ) -> Linearization[State]:
        longest = best if len(best) >= len(stack) else stack
        order = tuple(place for place, _, _ in longest)
        # What is noted with a call is the state before it.
        states = [state for _, state, _ in longest[1:]]
        if longest:
            states.append(self._after(longest[-1]))
        in_order = set(order)
        left = [place for place in self._begin_entry if place not in in_order]
        first_end = min((self._calls[place].end for place in left), default=NEVER)
        stuck = tuple(place for place in left if self._calls[place].begin <= first_end)
        return Linearization(is_linearizable, order, tuple(states), stuck, step_count)
