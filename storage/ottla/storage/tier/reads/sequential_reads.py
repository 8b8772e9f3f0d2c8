"""Detection of readers that read on where they ended, and how far to read ahead of them. Pure."""

from collections import OrderedDict
from typing import Final
from uuid import UUID

from ottla.model.ids import Offset

READERS_MAX: Final = 10_000
"""Number of positions that are remembered. With fewer, many slow readers are not read ahead."""


class SequentialReads:
    """Positions at which the last reads ended, each with the distance to read ahead if a reader
    continues there. The distance doubles with each read, so that a single read costs nothing, and a
    long one soon has the store's whole bandwidth."""

    def __init__(self, *, first: int, largest: int) -> None:
        self._first = first
        self._largest = largest
        self._distances: OrderedDict[tuple[UUID, int, Offset], int] = OrderedDict()

    def distance(self, topic_id: UUID, partition: int, offset: Offset) -> int:
        """Return the number of chunks to read ahead of a reader at an offset: 0 if no read ended
        there."""
        return self._distances.get((topic_id, partition, offset), 0)

    def advance(self, topic_id: UUID, partition: int, offset: Offset, end_offset: Offset) -> None:
        """Note that a read from an offset ended before another offset."""
        distance = self.distance(topic_id, partition, offset)
        key = (topic_id, partition, end_offset)
        further = min(max(2 * distance, self._first), self._largest)
        self._distances[key] = max(further, self._distances.get(key, 0))
        self._distances.move_to_end(key)
        while len(self._distances) > READERS_MAX:
            self._distances.popitem(last=False)
