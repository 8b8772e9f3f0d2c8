"""Producer ids from blocks that the controller allocates (KIP-730). Pure.

Each id is returned once. The unused rest of a block is lost when the broker stops, which is
harmless.
"""

from ottla.model.ids import ProducerId

Block = tuple[ProducerId, int]
"""First id of a block, and the number of its ids."""


class ProducerIds:
    """Unused producer ids of the current block."""

    __slots__ = ("_end", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0

    def take(self) -> ProducerId | None:
        """Return an unused id, or None if a new block must be requested."""
        if self._next >= self._end:
            return None
        self._next += 1
        return ProducerId(self._next - 1)

    @property
    def left_count(self) -> int:
        """Number of unused ids in the current block."""
        return self._end - self._next

    def add_block(self, block: Block) -> None:
        """Replace the current block by a new one. Unused ids of the old block are dropped."""
        first, count = block
        assert count > 0
        assert first >= self._end, "the controller never gives an id twice"
        self._next, self._end = first, first + count
