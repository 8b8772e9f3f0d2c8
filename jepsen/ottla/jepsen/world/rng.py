"""Random numbers from one seed: SplitMix64, the same sequence on every machine and Python. The
module does no I/O."""

from uuid import UUID

_MASK = (1 << 64) - 1


class SeededRng:
    """A generator of random numbers from one seed. It implements the protocol `Rng`."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def random(self) -> float:
        """Return a random float in `[0, 1)`."""
        return (self._next() >> 11) / (1 << 53)

    def below(self, bound: int) -> int:
        """Return a random integer in `[0, bound)`."""
        assert bound >= 1
        return self._next() % bound

    def uuid(self) -> UUID:
        """Return a random UUID."""
        return UUID(int=self._next() << 64 | self._next(), version=4)

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)
