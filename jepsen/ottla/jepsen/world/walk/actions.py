"""Chooses the actions of a random walk at random, until the walk's budget or its replay ends."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ottla.jepsen.world.chance import Chance

A = TypeVar("A")

STRENGTHS = 6
"""Number of values from which the frequency of each optional action of a random walk is chosen. 0
means the usual weight, 1 a lower weight, 2 a higher weight, and any other value the weight 0."""


def drawn_actions(chance: Chance, rows: Iterable[tuple[A, int, bool]]) -> list[A]:
    """Return the actions of a random walk. The list contains each action as often as its weight in
    this walk.

    A row consists of an action, its usual weight, and whether every walk needs the action. The
    weight in a walk is drawn at random, and is at least 1 for an action that every walk needs.
    """
    actions: list[A] = []
    for action, weight, is_needed in rows:
        strength = chance.below(STRENGTHS)
        if strength > 2 and is_needed:
            strength = 0
        actions += [action] * (weight, (weight + 1) // 2, weight * 3, 0, 0, 0)[strength]
    return actions


def actions_taken(chance: Chance, actions: Sequence[A], budget: int) -> Iterator[A]:
    """Yield at most `budget` randomly chosen elements of `actions`, one after the other. The caller
    must perform each action before it requests the next."""
    count = len(actions)
    for _ in range(budget):
        yield actions[chance.below(count)]
        if chance.is_spent:
            return
