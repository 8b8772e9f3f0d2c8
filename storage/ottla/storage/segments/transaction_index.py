"""The index of a segment's aborted transactions (`.txnindex`), which this module reads and writes.
The file is created for the first aborted transaction.

An entry has 34 bytes: int16 version 0, then producer id, first offset, last offset (the offset of
the marker) and the last stable offset at that time, int64 each. Entries are ordered by last offset.
"""

from struct import Struct
from typing import ClassVar, NamedTuple
from zlib import crc32

from ottla.model.ids import Offset
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.segments.abort_digests import NO_ABORTS, AbortDigest
from ottla.storage.segments.entry_file import EntryFile
from ottla.storage.segments.files import TRANSACTION_INDEX

VERSION = 0

ENTRIES_PER_READ = 256
"""Number of transaction index entries that a fetch request reads in one step. With fewer, there are
more reads. With more, entries are read that the fetch does not need."""

_ENTRY = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One aborted transaction: an entry of a segment's transaction index."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class TransactionIndex(EntryFile):
    """The transaction index of one segment, which lists its aborted transactions."""

    __slots__ = ("_sealed_crc",)

    entry_bytes: ClassVar[int] = _ENTRY.size
    is_rebuilt: ClassVar[bool] = False

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, ending: str = TRANSACTION_INDEX
    ) -> None:
        super().__init__(disk, directory, base_offset, ending)
        self._sealed_crc = 0

    @property
    def digest(self) -> AbortDigest:
        """Number and CRC of the transaction index's entries, from which startup detects a changed
        file."""
        crc = self._sealed_crc if self._memory is None else crc32(self._memory)
        return AbortDigest(self.count, crc) if self.count else NO_ABORTS

    def seal(self) -> None:
        """Release the memory of a trimmed transaction index. Its entries are from then on read from
        the file."""
        self._sealed_crc = self.digest.crc
        super().seal()

    def append(self, aborted: AbortedTransaction) -> None:
        """Add the entry of an aborted transaction to the transaction index."""
        self.add(_ENTRY.pack(VERSION, *aborted))

    def entry_at(self, index: int) -> AbortedTransaction:
        """Return the aborted transaction in the entry at position `index`, counted in entries from
        0."""
        _, producer_id, first, last, stable = _ENTRY.unpack(self.entry(index, self.entry_bytes))
        return AbortedTransaction(producer_id, Offset(first), Offset(last), Offset(stable))

    def is_sound(self, base_offset: Offset) -> bool:
        """Return whether all entries of the transaction index are plausible for aborted
        transactions of a segment that begins at `base_offset`.

        Reads a sealed index completely, and stores the digest of its entries.
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
        """Add the aborted transactions that overlap `[offset, end_offset)` to the list `into`.
        Returns True if the indexes of later segments cannot have such transactions."""
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
        """Return the position of the first index entry whose transaction's abort marker is at or
        after an offset."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.entry_at(middle).last_offset >= offset:
                high = middle
            else:
                low = middle + 1
        return low

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries of transactions whose abort marker is at or after `offset`."""
        count = self.count
        while count and self.entry_at(count - 1).last_offset >= offset:
            count -= 1
        self.keep_first(count)
