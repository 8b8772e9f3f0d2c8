"""Detection of sequential readers, which continue where their last read ended, and the number of
chunks to read ahead for them. Pure."""

from collections import OrderedDict
from typing import Final
from uuid import UUID

from ottla.model.ids import Offset

READERS_MAX: Final = 10_000
"""Maximum number of stored end positions of reads. With more concurrent readers, nothing is read
ahead for the slow ones."""


class SequentialReads:
    """End offsets of the latest reads, with the number of chunks to read ahead if a reader
    continues there.

    The number doubles with each read. A single read therefore causes no read-ahead, and a long
    sequence of reads soon uses the store's whole bandwidth.
    """

    def __init__(self, *, first: int, largest: int) -> None:
        self._first = first
        self._largest = largest
        self._distances: OrderedDict[tuple[UUID, int, Offset], int] = OrderedDict()

    def distance(self, topic_id: UUID, partition: int, offset: Offset) -> int:
        """Return the number of chunks to read ahead for a reader at `offset`. Returns 0 if no read
        has ended at this offset."""
        return self._distances.get((topic_id, partition, offset), 0)

    def advance(self, topic_id: UUID, partition: int, offset: Offset, end_offset: Offset) -> None:
        """Record that a read began at `offset` and ended at `end_offset`."""
        distance = self.distance(topic_id, partition, offset)
        key = (topic_id, partition, end_offset)
        further = min(max(2 * distance, self._first), self._largest)
        self._distances[key] = max(further, self._distances.get(key, 0))
        self._distances.move_to_end(key)
        while len(self._distances) > READERS_MAX:
            self._distances.popitem(last=False)
