"""The random choices of a run: drawn from its seed, recorded, and replayed.

A run is determined by its decisions, which are the numbers that `below` and `chance` return and
record. A replay of the list, whole or with parts removed, gives the same choices until the list
ends, and 0 for each later choice. The choice 0 must therefore be the harmless one: no fault, the
oldest message, the first of several. The numbers come from Python's Mersenne Twister, which is the
same in every version of Python.
"""

import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar
from uuid import UUID

T = TypeVar("T")

FLOAT_STEPS = 1 << 53
"""Number of equally likely floats in `[0, 1)` that a `Chance` can return."""


class Chance:
    """Recorded or replayed stream of random choices. It implements the protocol `Rng`, so the code
    under test can draw from it as well."""

    __slots__ = ("_at", "_draw", "_is_logged", "_replay", "decisions", "seed")

    def __init__(
        self, seed: int, replay: Sequence[int] | None = None, *, is_logged: bool = True
    ) -> None:
        self.seed = seed
        self.decisions: list[int] = []
        """The random choices of the run made so far, in order, each as the number that was
        drawn."""
        self._draw = random.Random(seed).random
        self._replay = replay
        self._at = 0
        self._is_logged = is_logged

    @property
    def is_spent(self) -> bool:
        """True if a replay has used all recorded decisions (random choices) of its list. An engine
        may stop the run then."""
        return self._replay is not None and self._at >= len(self._replay)

    def below(self, bound: int) -> int:
        """Draw, record and return an integer in `[0, bound)`."""
        value = int(self._draw() * bound) if self._replay is None else self._replayed() % bound
        if self._is_logged:
            self.decisions.append(value)
        return value

    def chance(self, p: float) -> bool:
        """Return True with probability `p`. The choice is recorded as the decision 1 or 0."""
        value = self._draw() < p if self._replay is None else self._replayed() > 0 and p > 0
        if self._is_logged:
            self.decisions.append(int(value))
        return value

    def random(self) -> float:
        """Draw, record and return a float in `[0, 1)`."""
        return self.below(FLOAT_STEPS) / FLOAT_STEPS

    def pick(self, things: Sequence[T]) -> T:
        """Return one element of `things`, chosen at random. The choice is recorded."""
        return things[self.below(len(things))]

    def uuid(self) -> UUID:
        """Return a new random UUID of version 4."""
        half = 1 << 32
        words = [self.below(half) for _ in range(4)]
        return UUID(int=sum(word << (32 * at) for at, word in enumerate(words)), version=4)

    def stream(self, name: str) -> "Chance":
        """Return a separate stream, derived from the seed and a name. Its choices are not recorded.

        Choices from the new stream do not affect this one. It is used for choices that should stay
        the same when a run is shrunk, such as the bytes of a torn write.
        """
        digest = blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()
        return Chance(int.from_bytes(digest, "big"), is_logged=False)

    def _replayed(self) -> int:
        assert self._replay is not None
        at = self._at
        if at >= len(self._replay):
            return 0
        self._at = at + 1
        return self._replay[at]
