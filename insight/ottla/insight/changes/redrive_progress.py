"""Encodes and decodes the progress of a redrive in one partition of a dead letter
topic: the offsets that later runs skip, because their letters were moved or belong to other groups.

Pure. One transaction moves records and stores this progress. Committed offsets of a consumer group
would not suffice, because letters that a filter skips may be moved later, and because committed
offsets expire.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from uuid import UUID

from ottla.model.errors import CorruptDataError

RANGES_MAX = 20_000
"""Maximum number of offset ranges in one stored progress record. A range takes up to 40 bytes, so
the record stays below 1 MB (`max.message.bytes`)."""
KEY_VERSION = 1


class DoneOffsets:
    """Set of the offsets that later redrives skip. It is stored as sorted ranges, with a gap
    between any two ranges."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Create the set of offsets from ranges. Each range is a first offset and an end offset,
        which is exclusive."""
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in ranges:
            self.add(begin, end)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._begins, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __len__(self) -> int:
        return len(self._begins)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Sorted ranges of the offsets in the set, which do not touch. Each is a first offset and
        an end offset, which is exclusive."""
        return list(zip(self._begins, self._ends, strict=True))

    def add(self, begin: int, end: int) -> None:
        """Add the offsets from `begin` to `end`, which is exclusive, to the set."""
        if begin >= end:
            return
        first = bisect_left(self._ends, begin)
        last = bisect_right(self._begins, end)
        if first < last:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]

    def discard(self, offset: int) -> None:
        """Remove an offset from the set, if it is there."""
        at = bisect_right(self._begins, offset) - 1
        if at < 0 or offset >= self._ends[at]:
            return
        begin, end = self._begins[at], self._ends[at]
        pieces = [one for one in ((begin, offset), (offset + 1, end)) if one[0] < one[1]]
        self._begins[at : at + 1] = [one[0] for one in pieces]
        self._ends[at : at + 1] = [one[1] for one in pieces]

    def copy(self) -> "DoneOffsets":
        """Return a new set with the same offsets."""
        found = DoneOffsets()
        found._begins, found._ends = self._begins[:], self._ends[:]
        return found


def progress_key(group_id: str, topic: str, topic_id: UUID, partition: int) -> bytes:
    """Return the key of the record that stores the progress of a redrive in one
    partition. A dead letter topic that is created again has another id, and therefore no stored
    progress."""
    return json.dumps([KEY_VERSION, group_id, topic, str(topic_id), partition]).encode()


def stored(done: DoneOffsets) -> bytes:
    """Return the value of the record that stores the progress of a redrive, given the
    offsets to skip."""
    return json.dumps({"done": done.ranges}, separators=(",", ":")).encode()


def restored(value: bytes | None) -> DoneOffsets:
    """Return the progress of a redrive in the value of a record. Raises
    CorruptDataError if the value contains no progress."""
    try:
        ranges = [(int(begin), int(end)) for begin, end in json.loads(value or b"")["done"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CorruptDataError("a progress record of a redrive") from None
    return DoneOffsets(ranges)
