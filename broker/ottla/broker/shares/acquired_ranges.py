"""Combines the ranges of records that a member acquires. Limits the size of ranges whose records
failed before. Pure."""

from collections.abc import Iterable
from typing import NamedTuple


class AcquiredRange(NamedTuple):
    """Range of records that a share group member has acquired. All records of the range have the
    same delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def size(self) -> int:
        """Number of records in the acquired range."""
        return self.last_offset - self.first_offset + 1


def add_range(found: list[AcquiredRange], first: int, last: int, count: int) -> None:
    """Add records to the acquired ranges. The records extend the last range if they are adjacent to
    it and have the same delivery count `count`. An empty last range marks a boundary, at which no
    ranges are joined."""
    if found:
        before = found[-1]
        if before.last_offset + 1 == first and before.delivery_count == count:
            found[-1] = before._replace(last_offset=last)
            return
        if not before.delivery_count:
            found.pop()
    found.append(AcquiredRange(first, last, count))


def count_of(ranges: Iterable[AcquiredRange]) -> int:
    """Return the total number of records in acquired ranges."""
    return sum([one.last_offset - one.first_offset + 1 for one in ranges])


def throttled_size(size: int, count: int, limit: int) -> int | None:
    """Return the number of records to acquire together from a range of `size` records that were
    delivered `count` times. Returns None if they may be acquired together with other records.

    A record that breaks its consumers uses up deliveries of the records acquired with it. The
    closer `count` is to the delivery count limit `limit`, the fewer records are therefore acquired
    together (KIP-932).
    """
    threshold = max(2, (limit + 1) // 2)
    if count < threshold:
        return None
    if limit > 2 and count >= limit - 1:
        return 1
    return max(1, size >> (count - threshold + 1))
