"""The world's chance: every choice of a run, drawn from its seed, written down, and played again.

A run is its decisions: the list that `below` and `chance` wrote down.  Played again, whole or with
parts cut out, it gives the same choices for as long as the list lasts and 0 from then on, so 0 must
mean the quiet choice: no fault, the oldest message, the first of a row.  The numbers are those of
Python's Mersenne Twister, which every version of Python deals alike.
"""

import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar
from uuid import UUID

T = TypeVar("T")

FLOAT_STEPS = 1 << 53
"""As many values as a float in `[0, 1)` can take with equal chance."""


class Chance:
    """One stream of choices; it satisfies the seam `Rng`, so that cores may draw from it."""

    __slots__ = ("_at", "_draw", "_is_logged", "_replay", "decisions", "seed")

    def __init__(
        self, seed: int, replay: Sequence[int] | None = None, *, is_logged: bool = True
    ) -> None:
        self.seed = seed
        self.decisions: list[int] = []
        """What was chosen so far, in order."""
        self._draw = random.Random(seed).random
        self._replay = replay
        self._at = 0
        self._is_logged = is_logged

    @property
    def is_spent(self) -> bool:
        """Whether a replay has come to the end of its list; an engine may stop there."""
        return self._replay is not None and self._at >= len(self._replay)

    def below(self, bound: int) -> int:
        """Return an integer in `[0, bound)`."""
        value = int(self._draw() * bound) if self._replay is None else self._replayed() % bound
        if self._is_logged:
            self.decisions.append(value)
        return value

    def chance(self, p: float) -> bool:
        """Return True with probability `p`; written down as 1 or 0."""
        value = self._draw() < p if self._replay is None else self._replayed() > 0 and p > 0
        if self._is_logged:
            self.decisions.append(int(value))
        return value

    def random(self) -> float:
        """Return a float in `[0, 1)`."""
        return self.below(FLOAT_STEPS) / FLOAT_STEPS

    def pick(self, things: Sequence[T]) -> T:
        """Return one of a row of things."""
        return things[self.below(len(things))]

    def uuid(self) -> UUID:
        """Return a fresh random id of version 4."""
        half = 1 << 32
        words = [self.below(half) for _ in range(4)]
        return UUID(int=sum(word << (32 * at) for at, word in enumerate(words)), version=4)

    def stream(self, name: str) -> "Chance":
        """Return a stream of its own, made from the seed and a name; it is not written down.

        What is drawn from it changes nothing in this one: for what a shrunk run should keep as it
        was, such as the bytes of a disk's torn write.
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
