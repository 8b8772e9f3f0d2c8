"""Adapter that implements the protocol `Rng` with Python's `Random`, for input generators that need
both interfaces."""

from random import Random
from uuid import UUID


class FuzzRng:
    """Random number generator that draws from a `Random`, which the caller has seeded."""

    __slots__ = ("_random",)

    def __init__(self, random: Random) -> None:
        self._random = random

    def random(self) -> float:
        """Return a random float in `[0, 1)`."""
        return self._random.random()

    def below(self, bound: int) -> int:
        """Return a random integer in `[0, bound)`."""
        return self._random.randrange(bound)

    def uuid(self) -> UUID:
        """Return a random UUID of version 4."""
        return UUID(int=self._random.getrandbits(128), version=4)
