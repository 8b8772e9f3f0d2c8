"""Search through every course of events of a small case, shortest first, meeting each state once.

A state says which actions it offers; taking one gives the next state and leaves this one as it was.
A state met again is passed over.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_of


class State(Protocol):
    """One state of a case."""

    def key(self) -> Hashable:
        """Return what makes this state this one."""
        ...

    def actions(self) -> Sequence[str]:
        """Return the names of what may happen next, in a fixed order."""
        ...

    def take(self, action: str) -> "State | None":
        """Return the state after an action; None where the case ends there."""
        ...


class Search(NamedTuple):
    """What a search has seen."""

    state_count: int
    step_count: int
    violation: Violation | None
    path: tuple[int, ...]
    """To the violation: which action was taken in each state."""
    depth_complete: int
    """Every course of so many actions was seen."""


def figures_of(found: Search) -> dict[str, int]:
    """Return what a search counts."""
    return {"states": found.state_count, f"cases seen whole to depth {found.depth_complete}": 1}


def search(start: State, *, depth_max: int, step_count_max: int, trace: Trace) -> Search:
    """See every course of 1, 2, ... actions until `step_count_max` steps are spent.

    Breadth first: what is found is found on a shortest way.
    """
    seen = {hash(start.key())}
    frontier: list[tuple[State, tuple[int, ...]]] = [(start, ())]
    step_count = 0
    for depth in range(depth_max):
        following_frontier: list[tuple[State, tuple[int, ...]]] = []
        for state, path in frontier:
            for at, action in enumerate(state.actions()):
                if step_count >= step_count_max:
                    return Search(len(seen), step_count, None, (), depth)
                step_count += 1
                try:
                    following = state.take(action)
                except Exception as error:
                    violation = violation_of(error)
                    return Search(len(seen), step_count, violation, (*path, at), depth)
                if following is None:
                    continue
                key = hash(following.key())
                if key not in seen:
                    seen.add(key)
                    following_frontier.append((following, (*path, at)))
        trace.add(depth, step_count, len(seen), len(following_frontier))
        frontier = following_frontier
        if not frontier:
            return Search(len(seen), step_count, None, (), depth_max)
    return Search(len(seen), step_count, None, (), depth_max)


def follow(start: State, chance: Chance, *, depth_max: int, trace: Trace) -> Violation | None:
    """Take the one course that a replay names."""
    state: State | None = start
    try:
        for _ in range(depth_max):
            assert state is not None
            actions = state.actions()
            if chance.is_spent or not actions:
                return None
            action = actions[chance.below(len(actions))]
            trace.add(action)
            state = state.take(action)
            if state is None:
                return None
    except Exception as error:
        return violation_of(error)
    return None
