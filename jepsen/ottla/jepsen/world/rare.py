"""Counters of rare states: a search that never meets them has not looked.

An engine names the states it must reach; a long run that misses one of them fails.
"""


class Rare:
    """How often each rare state was reached."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def sometimes(self, name: str) -> None:
        """Count a rare state."""
        self.counts[name] = self.counts.get(name, 0) + 1
