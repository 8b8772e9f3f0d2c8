"""What a walk does next: actions as often as a run has them, until budget or replay end."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ottla.jepsen.world.chance import Chance

A = TypeVar("A")

STRENGTHS = 6
"""0: as usual; 1: seldom; 2: often; else never, for what a run can do without."""


def drawn_actions(chance: Chance, rows: Iterable[tuple[A, int, bool]]) -> list[A]:
    """Return every action as often as its weight in this run says.

    A row is an action, its usual weight, and whether no run can do without it.
    """
    actions: list[A] = []
    for action, weight, is_needed in rows:
        strength = chance.below(STRENGTHS)
        if strength > 2 and is_needed:
            strength = 0
        actions += [action] * (weight, (weight + 1) // 2, weight * 3, 0, 0, 0)[strength]
    return actions


def actions_taken(chance: Chance, actions: Sequence[A], budget: int) -> Iterator[A]:
    """Yield one action after the other, each to be taken before the next is drawn."""
    count = len(actions)
    for _ in range(budget):
        yield actions[chance.below(count)]
        if chance.is_spent:
            return
