"""Counters of rare states of a simulated system. They show whether a search has reached the states
that it should test.

An engine lists the states it must reach. A long run that misses one of them fails.
"""


class RareStates:
    """Number of times that a search for bugs reached each rare state (a state that tests should
    reach), by name."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def sometimes(self, name: str) -> None:
        """Count one occurrence of the rare state with this name."""
        self.counts[name] = self.counts.get(name, 0) + 1
