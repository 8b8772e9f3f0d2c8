"""The index of aborted transactions (`.txnindex`), made when the first abort comes.

34 bytes an entry: int16 version 0, then producer id, first offset, last offset (the marker's) and
last stable offset at that time, int64 each; in order of the last offset.
"""

from struct import Struct
from typing import ClassVar, NamedTuple
from zlib import crc32

from ottla.model.ids import Offset
from ottla.storage.abort_digests import NO_ABORTS, AbortDigest
from ottla.storage.disk_seam import Disk
from ottla.storage.entry_file import EntryFile

VERSION = 0

ENTRIES_PER_READ = 256
"""Entries that a fetch reads at once: fewer cost more reads, more read what the fetch passes by."""

_ENTRY = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One entry."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class TransactionIndex(EntryFile):
    """The aborted transactions of one segment."""

    __slots__ = ("_sealed_crc",)

    entry_bytes: ClassVar[int] = _ENTRY.size
    is_rebuilt: ClassVar[bool] = False

    def __init__(self, disk: Disk, path: str) -> None:
        super().__init__(disk, path)
        self._sealed_crc = 0

    @property
    def digest(self) -> AbortDigest:
        """Number and CRC of the entries."""
        crc = self._sealed_crc if self._memory is None else crc32(self._memory)
        return AbortDigest(self.count, crc) if self.count else NO_ABORTS

    def seal(self) -> None:
        """Let go of the memory of a trimmed file."""
        self._sealed_crc = self.digest.crc
        super().seal()

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry."""
        self.add(_ENTRY.pack(VERSION, *aborted))

    def entry_at(self, index: int) -> AbortedTransaction:
        """Return one entry."""
        _, producer_id, first, last, stable = _ENTRY.unpack(self.entry(index, self.entry_bytes))
        return AbortedTransaction(producer_id, Offset(first), Offset(last), Offset(stable))

    def is_sound(self, base_offset: Offset) -> bool:
        """Return True if all entries can be of aborts in a segment that begins at `base_offset`.

        A sealed index is read whole for it, and its digest is known from then on.
        """
        previous = base_offset - 1
        entries = self.entry(0, self.count * self.entry_bytes)
        self._sealed_crc = crc32(entries)
        for version, _, first, last, stable in _ENTRY.iter_unpack(entries):
            if version != VERSION or not 0 <= first < last or last <= previous or stable < 0:
                return False
            previous = last
        return True

    def collect(self, offset: Offset, end_offset: Offset, into: list[AbortedTransaction]) -> bool:
        """Add what meets `[offset, end_offset)`; return whether later ones hold none."""
        at = self._first_ending_at(offset)
        while at < self.count:
            count = min(ENTRIES_PER_READ, self.count - at)
            for _, *fields in _ENTRY.iter_unpack(self.entry(at, count * self.entry_bytes)):
                producer_id, first, last, stable = fields
                if first < end_offset:
                    into.append(
                        AbortedTransaction(producer_id, Offset(first), Offset(last), Offset(stable))
                    )
                if stable >= end_offset:
                    return True
            at += count
        return False

    def _first_ending_at(self, offset: Offset) -> int:
        """Return the index of the first entry whose marker lies at or after an offset."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.entry_at(middle).last_offset >= offset:
                high = middle
            else:
                low = middle + 1
        return low

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries whose marker lies at or after `offset`."""
        count = self.count
        while count and self.entry_at(count - 1).last_offset >= offset:
            count -= 1
        self.keep_first(count)
