"""The two sparse indexes of a log segment: by offset and by time.

The offset index (`.index`) maps the last offset of a batch to the position of the batch in the
file. An entry has 8 bytes: offset relative to the segment's base offset (int32), position (int32).
Offsets and positions strictly increase. A look-up returns a position at or before the batch, from
which the log is then scanned.

The time index (`.timeindex`) maps the largest timestamp so far to the offset of its record. An
entry has 12 bytes: timestamp (int64), offset relative to the segment's base offset (int32).
Timestamps strictly increase. The last slot is reserved for the entry that is added when the segment
is closed (KIP-33).
"""

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import ClassVar

from ottla.model.limits import INT32_MAX
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.segments.entry_file import EntryFile, whole_entries_count
from ottla.storage.segments.files import OFFSET_INDEX, TIME_INDEX
from ottla.wire.batch import NO_TIMESTAMP

_OFFSET_ENTRY = Struct(">ii")

NEAR_ENTRY_COUNT = 16
"""Number of offset index entries that a look-up searches first, starting at the entry that the last
look-up found. With more entries, readers with larger reads also avoid a search of the whole index.
With fewer, the first search is shorter."""


class OffsetIndex(EntryFile):
    """The offset index (`.index`) of one segment, which maps offsets to positions in the `.log`
    file."""

    __slots__ = ("_found_last", "count_max")

    entry_bytes: ClassVar[int] = _OFFSET_ENTRY.size

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        bytes_max: int,
        ending: str = OFFSET_INDEX,
    ) -> None:
        super().__init__(disk, directory, base_offset, ending)
        self._found_last = 0
        self.count_max = whole_entries_count(bytes_max, self.entry_bytes)
        """Number of offset index entries at which the index is full, so that the segment must
        roll."""

    @property
    def is_full(self) -> bool:
        """True if the offset index has no space for another entry, so that the segment must
        roll."""
        return self.count >= self.count_max

    @property
    def last_entry(self) -> tuple[int, int]:
        """Offset and file position of the last index entry, or (base offset, 0) if there are no
        entries."""
        return self.entry_at(self.count - 1) if self.count else (self.base_offset, 0)

    def append(self, offset: int, position: int) -> None:
        """Add an offset index entry for a batch: its last offset and its position in the file.
        Offsets must increase."""
        relative = offset - self.base_offset
        assert 0 <= relative <= INT32_MAX
        assert self.count == 0 or relative > self._relative_at(self.count - 1)
        self.add(_OFFSET_ENTRY.pack(relative, position))

    def entry_at(self, index: int) -> tuple[int, int]:
        """Return the offset and the file position in the entry at position `index`, counted in
        entries from 0."""
        relative, position = _OFFSET_ENTRY.unpack(self.entry(index, self.entry_bytes))
        return self.base_offset + relative, position

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return the last index entry whose offset is at or below `offset`, as (offset, file
        position). Returns (base offset, 0) if there is no such entry."""
        relative = offset - self.base_offset
        count = self.count
        if count and relative >= self._relative_at(count - 1):
            self._found_last = count - 1
            return self.entry_at(count - 1)  # no search for readers at the end of the log
        first, end = self._narrowed(relative)
        index = bisect_right(range(count), relative, first, end, key=self._relative_at)
        if index == 0:
            return self.base_offset, 0
        self._found_last = index - 1
        return self.entry_at(index - 1)

    def position_behind_found(self) -> int:
        """Return the file position stored in the index entry after the entry that the last `lookup`
        returned, or -1 if there is no such entry."""
        behind = self._found_last + 1
        return self.entry_at(behind)[1] if behind < self.count else -1

    def batch_start_before(self, position: int) -> int:
        """Return the file position of the last batch that has an index entry and starts at or
        before `position`.

        Returns 0 if there is no such batch. Raises NotCachedError if the entries are not in the
        page cache.
        """
        at = bisect_right(range(self.count), position, key=lambda at: self.entry_at(at)[1])
        return self.entry_at(at - 1)[1] if at else 0

    def _narrowed(self, relative: int) -> tuple[int, int]:
        """Return the range of index entries to search for an offset relative to the base offset.

        If the entries just after those of the last look-up contain the offset, only these entries
        are searched; otherwise all entries.
        """
        first, count = self._found_last, self.count
        if first >= count or self._relative_at(first) > relative:
            return 0, count
        end = first + NEAR_ENTRY_COUNT
        if end >= count or self._relative_at(end) <= relative:
            return first, count
        return first, end

    def truncate_to(self, offset: int) -> None:
        """Drop the index entries of batches whose last offset is at or after `offset`."""
        relative = offset - self.base_offset
        self.keep_first(bisect_left(range(self.count), relative, key=self._relative_at))

    def _relative_at(self, index: int) -> int:
        return int.from_bytes(self.entry(index, 4), "big")


_TIME_ENTRY = Struct(">qi")


class TimeIndex(EntryFile):
    """The time index (`.timeindex`) of one segment, which maps timestamps to offsets."""

    __slots__ = ("count_max",)

    entry_bytes: ClassVar[int] = _TIME_ENTRY.size

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, bytes_max: int, ending: str = TIME_INDEX
    ) -> None:
        super().__init__(disk, directory, base_offset, ending)
        self.count_max = whole_entries_count(bytes_max, self.entry_bytes, 1)
        """Number of time index entries at which only the slot for the closing entry is left. The
        closing entry is added when the segment is closed."""

    @property
    def is_full(self) -> bool:
        """True if the time index has only the slot for the closing entry left, which is added when
        the segment is closed."""
        return self.count >= self.count_max

    @property
    def last_entry(self) -> tuple[int, int]:
        """Timestamp in ms and offset of the last time index entry, or (-1, base offset) if there
        are no entries."""
        return self.entry_at(self.count - 1) if self.count else (NO_TIMESTAMP, self.base_offset)

    def append_if_later(self, timestamp_ms: int, offset: int) -> None:
        """Add a time index entry if `timestamp_ms` is above the timestamp of the last entry."""
        if timestamp_ms > self.last_entry[0]:
            relative = offset - self.base_offset
            assert 0 <= relative <= INT32_MAX
            self.add(_TIME_ENTRY.pack(timestamp_ms, relative))

    def entry_at(self, index: int) -> tuple[int, int]:
        """Return the timestamp in ms and the offset in the entry at position `index`, counted in
        entries from 0."""
        timestamp_ms, relative = _TIME_ENTRY.unpack(self.entry(index, self.entry_bytes))
        return timestamp_ms, self.base_offset + relative

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """Return the last time index entry with a timestamp at or below `timestamp_ms`, as
        (timestamp, offset). Returns (-1, base offset) if there is no such entry."""
        index = bisect_right(range(self.count), timestamp_ms, key=self._timestamp_at)
        return (NO_TIMESTAMP, self.base_offset) if index == 0 else self.entry_at(index - 1)

    def truncate_to(self, offset: int) -> None:
        """Drop the time index entries whose offsets are at or after `offset`."""
        count = self.count
        while count and self.entry_at(count - 1)[1] >= offset:
            count -= 1
        self.keep_first(count)

    def _timestamp_at(self, index: int) -> int:
        return int.from_bytes(self.entry(index, 8), "big", signed=True)
