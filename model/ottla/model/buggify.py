"""Rare choices that only the deterministic world takes: a tiny fetch, an early election.

Production code offers them by `if buggify("name")` where a choice is legal but seldom or never
made; off, that is one test of a global.  The world switches them on with dice of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Dice = Callable[[str], bool]
"""Says whether the rare choice of this name is taken now."""

_dice: Dice | None = None


def buggify(name: str) -> bool:
    """Return whether to take the rare choice; never in production."""
    return _dice is not None and _dice(name)


@contextmanager
def buggified(dice: Dice) -> Iterator[None]:
    """Let the dice decide within the `with`."""
    global _dice
    before, _dice = _dice, dice
    try:
        yield
    finally:
        _dice = before
