"""The sparse time index (`.timeindex`): the largest timestamp so far → the offset that has it.

12 bytes an entry: timestamp (int64), offset relative to the segment's base (int32).  Timestamps
strictly increase.  The last slot is kept for the entry a segment gets when it is closed (KIP-33).
"""

from bisect import bisect_right
from struct import Struct

from ottla.model.limits import INT32_MAX
from ottla.storage.disk_seam import Disk
from ottla.storage.entry_file import EntryFile
from ottla.wire.batch import NO_TIMESTAMP

_ENTRY = Struct(">qi")


class TimeIndex(EntryFile):
    """The time index of one segment."""

    __slots__ = ("base_offset", "entry_count_max")

    entry_bytes = _ENTRY.size

    def __init__(self, disk: Disk, path: str, base_offset: int, bytes_max: int) -> None:
        super().__init__(disk, path)
        self.base_offset = base_offset
        self.entry_count_max = bytes_max // self.entry_bytes

    @property
    def is_full(self) -> bool:
        """Whether only the slot for the closing entry is left."""
        return self.count >= self.entry_count_max - 1

    @property
    def last_entry(self) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry; (-1, base offset) when there is none."""
        return self.entry_at(self.count - 1) if self.count else (NO_TIMESTAMP, self.base_offset)

    def append_if_later(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry unless its timestamp is no news."""
        if timestamp_ms > self.last_entry[0]:
            relative = offset - self.base_offset
            assert 0 <= relative <= INT32_MAX
            self.add(_ENTRY.pack(timestamp_ms, relative))

    def entry_at(self, index: int) -> tuple[int, int]:
        """Return (timestamp, offset) of one entry."""
        timestamp_ms, relative = _ENTRY.unpack(self.entry(index, self.entry_bytes))
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
