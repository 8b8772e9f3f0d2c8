"""Assigns producer ids from blocks that the controller allocates (KIP-730). Pure.

Each id is assigned once. When the broker stops, the remaining ids of a block are lost, which is
harmless.
"""

from ottla.model.ids import ProducerId

Block = tuple[ProducerId, int]
"""Block of producer ids that the controller has allocated: its first id, and the number of its
ids."""


class ProducerIds:
    """Unused producer ids of the block that the controller allocated last."""

    __slots__ = ("_end", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0

    def take(self) -> ProducerId | None:
        """Return an unused producer id, or None if a new block must be requested from the
        controller."""
        if self._next >= self._end:
            return None
        self._next += 1
        return ProducerId(self._next - 1)

    @property
    def left_count(self) -> int:
        """Number of unused producer ids in the current block."""
        return self._end - self._next

    def add_block(self, block: Block) -> None:
        """Replace the current block of producer ids. The unused ids of the old block are
        dropped."""
        first, count = block
        assert count > 0
        assert first >= self._end, "the controller never gives an id twice"
        self._next, self._end = first, first + count
