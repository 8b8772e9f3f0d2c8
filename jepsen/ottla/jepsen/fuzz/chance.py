"""The seam of chance over a generator that has more to offer, for makers of inputs."""

from random import Random
from uuid import UUID


class FuzzRng:
    """Draws from a `Random` that its owner seeded."""

    __slots__ = ("_random",)

    def __init__(self, random: Random) -> None:
        self._random = random

    def random(self) -> float:
        """Return a float in `[0, 1)`."""
        return self._random.random()

    def below(self, bound: int) -> int:
        """Return an integer in `[0, bound)`."""
        return self._random.randrange(bound)

    def uuid(self) -> UUID:
        """Return a random id of version 4."""
        return UUID(int=self._random.getrandbits(128), version=4)
