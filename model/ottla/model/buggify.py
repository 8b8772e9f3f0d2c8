"""Rare choices that only simulations make, such as a tiny fetch or an early election.

Production code calls `buggify("name")` where an unusual behaviour is legal but rarely or never
occurs. Outside of simulations the call returns False and costs one test of a global variable. A
simulation enables these choices and decides each of them with its own random numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Dice = Callable[[str], bool]
"""Function that returns whether the rare choice with this name is made now."""

_dice: Dice | None = None


def buggify(name: str) -> bool:
    """Return whether to make the rare choice with this name. Always False in production."""
    return _dice is not None and _dice(name)


@contextmanager
def buggified(dice: Dice) -> Iterator[None]:
    """Enable rare choices within the block. Calls `dice` to decide each of them."""
    global _dice
    before, _dice = _dice, dice
    try:
        yield
    finally:
        _dice = before
