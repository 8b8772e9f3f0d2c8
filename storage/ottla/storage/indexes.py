"""The two sparse indexes of a segment.

The offset index (`.index`): last offset of a batch → where the batch starts in the file.  8 bytes
an entry: offset relative to the segment's base (int32), position (int32); both strictly increase.
A look-up gives a place at or before the batch, from where the log is walked.

The time index (`.timeindex`): the largest timestamp so far → the offset that has it.  12 bytes an
entry: timestamp (int64), offset relative to the segment's base (int32).  Timestamps strictly
increase.  The last slot is kept for the entry a segment gets when it is closed (KIP-33).
"""

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import ClassVar

from ottla.model.limits import INT32_MAX
from ottla.storage.disk_seam import Disk
from ottla.storage.entry_file import EntryFile
from ottla.wire.batch import NO_TIMESTAMP

_OFFSET_ENTRY = Struct(">ii")

NEAR_ENTRY_COUNT = 16
"""How far behind the last look-up's entry the next one is looked for first.  Higher lets larger
reads go on without a search of the whole index, lower makes the short search shorter."""


class OffsetIndex(EntryFile):
    """The offset index of one segment."""

    __slots__ = ("_found_last", "base_offset", "count_max")

    entry_bytes: ClassVar[int] = _OFFSET_ENTRY.size

    def __init__(self, disk: Disk, path: str, base_offset: int, bytes_max: int) -> None:
        super().__init__(disk, path)
        self.base_offset = base_offset
        self._found_last = 0
        self.count_max = bytes_max // self.entry_bytes
        """Entries with which the segment must roll for want of room here."""

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll for want of room here."""
        return self.count >= self.count_max

    @property
    def last_entry(self) -> tuple[int, int]:
        """Return (offset, position) of the last entry; (base offset, 0) when there is none."""
        return self.entry_at(self.count - 1) if self.count else (self.base_offset, 0)

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offsets only grow."""
        relative = offset - self.base_offset
        assert 0 <= relative <= INT32_MAX
        assert self.count == 0 or relative > self._relative_at(self.count - 1)
        self.add(_OFFSET_ENTRY.pack(relative, position))

    def entry_at(self, index: int) -> tuple[int, int]:
        """Return (offset, position) of one entry."""
        relative, position = _OFFSET_ENTRY.unpack(self.entry(index, self.entry_bytes))
        return self.base_offset + relative, position

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return the last entry at or before `offset`; (base offset, 0) when there is none."""
        relative = offset - self.base_offset
        count = self.count
        if count and relative >= self._relative_at(count - 1):
            return self.entry_at(count - 1)  # tailing readers search nothing
        first, end = self._narrowed(relative)
        index = bisect_right(range(count), relative, first, end, key=self._relative_at)
        if index == 0:
            return self.base_offset, 0
        self._found_last = index - 1
        return self.entry_at(index - 1)

    def batch_start_before(self, position: int) -> int:
        """Return the last position up to this one at which an entry says that a batch begins.

        0 if there is none.  Raises NotCachedError if the entries are not in memory.
        """
        at = bisect_right(range(self.count), position, key=lambda at: self.entry_at(at)[1])
        return self.entry_at(at - 1)[1] if at else 0

    def _narrowed(self, relative: int) -> tuple[int, int]:
        """Return which entries to search: those a reader that goes on would come to, or all."""
        first, count = self._found_last, self.count
        if first >= count or self._relative_at(first) > relative:
            return 0, count
        end = first + NEAR_ENTRY_COUNT
        if end >= count or self._relative_at(end) <= relative:
            return first, count
        return first, end

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after `offset`."""
        relative = offset - self.base_offset
        self.keep_first(bisect_left(range(self.count), relative, key=self._relative_at))

    def _relative_at(self, index: int) -> int:
        return int.from_bytes(self.entry(index, 4), "big")


_TIME_ENTRY = Struct(">qi")


class TimeIndex(EntryFile):
    """The time index of one segment."""

    __slots__ = ("base_offset", "count_max")

    entry_bytes: ClassVar[int] = _TIME_ENTRY.size

    def __init__(self, disk: Disk, path: str, base_offset: int, bytes_max: int) -> None:
        super().__init__(disk, path)
        self.base_offset = base_offset
        self.count_max = bytes_max // self.entry_bytes - 1
        """Entries with which only the slot for the closing one is left."""

    @property
    def is_full(self) -> bool:
        """Whether only the slot for the closing entry is left."""
        return self.count >= self.count_max

    @property
    def last_entry(self) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry; (-1, base offset) when there is none."""
        return self.entry_at(self.count - 1) if self.count else (NO_TIMESTAMP, self.base_offset)

    def append_if_later(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry unless its timestamp is no news."""
        if timestamp_ms > self.last_entry[0]:
            relative = offset - self.base_offset
            assert 0 <= relative <= INT32_MAX
            self.add(_TIME_ENTRY.pack(timestamp_ms, relative))

    def entry_at(self, index: int) -> tuple[int, int]:
        """Return (timestamp, offset) of one entry."""
        timestamp_ms, relative = _TIME_ENTRY.unpack(self.entry(index, self.entry_bytes))
        return timestamp_ms, self.base_offset + relative

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """Return the last entry whose timestamp is not above; (-1, base offset) when none is."""
        index = bisect_right(range(self.count), timestamp_ms, key=self._timestamp_at)
        return (NO_TIMESTAMP, self.base_offset) if index == 0 else self.entry_at(index - 1)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries that speak of `offset` or later."""
        count = self.count
        while count and self.entry_at(count - 1)[1] >= offset:
            count -= 1
        self.keep_first(count)

    def _timestamp_at(self, index: int) -> int:
        return int.from_bytes(self.entry(index, 8), "big", signed=True)
