"""Producer ids, given from blocks that the controller allocates (KIP-730).  Pure.

Ids are given once: a block that is not used up when the broker dies is lost, and nobody minds.
"""

from ottla.model.ids import ProducerId

Block = tuple[ProducerId, int]
"""The first id of a block, and how many it holds."""


class ProducerIds:
    """The ids of the current block."""

    __slots__ = ("_end", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0

    def take(self) -> ProducerId | None:
        """Return an id nobody has had, None when a new block is due."""
        if self._next >= self._end:
            return None
        self._next += 1
        return ProducerId(self._next - 1)

    @property
    def left_count(self) -> int:
        """Number of ids left in the block."""
        return self._end - self._next

    def add_block(self, block: Block) -> None:
        """Go on with a block; what is left of the last one is given up."""
        first, count = block
        assert count > 0
        assert first >= self._end, "the controller never gives an id twice"
        self._next, self._end = first, first + count
