"""Look-ups in the indexes of a copied segment, whose sections have the formats of Kafka's index
files. Pure.

The sections are read from a bucket into which others may write. Only their CRCs and sizes were
checked. If a section has wrong entries, a look-up ends after a bounded number of steps with a wrong
result, which the reader of the records detects.
"""

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final, NamedTuple

from ottla.model.ids import Offset
from ottla.storage.segments.transaction_index import VERSION, AbortedTransaction
from ottla.storage.tier.manifest import CHECKSUM_BYTES

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_ABORT_ENTRY: Final = Struct(">hqqqq")


class IndexedPosition(NamedTuple):
    """An entry of the offset index: the last offset of a batch, and the position of the batch in
    bytes."""

    offset: Offset
    position: int


class AbortedInSegment(NamedTuple):
    """Aborted transactions in a range of offsets, as listed in the transaction index of one
    segment."""

    transactions: list[AbortedTransaction]
    is_complete: bool
    """True if the indexes of later segments contain no further aborted transactions in the
    range."""


def checksum_at(checksums: bytes, chunk: int) -> int:
    """Return the CRC32C of the chunk with the number `chunk`."""
    at = chunk * CHECKSUM_BYTES
    return int.from_bytes(checksums[at : at + CHECKSUM_BYTES], "big")


def position_before(offsets: bytes, base_offset: Offset, offset: Offset) -> int:
    """Return the position, in bytes, of an indexed batch at or before the batch that contains
    `offset`."""
    relative = offset - base_offset
    at = bisect_right(range(len(offsets) // 8), relative, key=lambda at: _offset(offsets, at)[0])
    return _offset(offsets, at - 1)[1] if at else 0


def last_batch_before(
    offsets: bytes, base_offset: Offset, *, position: int, end_offset: Offset
) -> IndexedPosition | None:
    """Return the last entry of the offset index whose batch begins at or before `position` and ends
    below `end_offset`. Returns None if there is no such entry."""
    count = len(offsets) // 8
    by_position = bisect_right(range(count), position, key=lambda at: _offset(offsets, at)[1])
    relative_end: int = end_offset - base_offset
    by_offset = bisect_left(range(count), relative_end, key=lambda at: _offset(offsets, at)[0])
    at = min(by_position, by_offset)
    if not at:
        return None
    relative, found = _offset(offsets, at - 1)
    return IndexedPosition(Offset(base_offset + relative), found)


def offset_before_timestamp(times: bytes, base_offset: Offset, timestamp_ms: int) -> Offset:
    """Return an offset from which to search for a timestamp. All earlier records of the segment
    have timestamps below `timestamp_ms`."""
    at = bisect_left(range(len(times) // 12), timestamp_ms, key=lambda at: _time(times, at)[0])
    return Offset(base_offset + _time(times, at - 1)[1]) if at else base_offset


def aborted_between(aborts: bytes, offset: Offset, end_offset: Offset) -> AbortedInSegment:
    """Return the aborted transactions that overlap `[offset, end_offset)`, in the order of their
    markers. Entries of an unknown version are skipped."""
    count = len(aborts) // _ABORT_ENTRY.size
    first = bisect_left(range(count), int(offset), key=lambda at: _abort(aborts, at)[3])
    found = []
    for at in range(first, count):
        version, producer_id, first_offset, last_offset, stable = _abort(aborts, at)
        if version == VERSION and first_offset < end_offset:
            found.append(
                AbortedTransaction(
                    producer_id, Offset(first_offset), Offset(last_offset), Offset(stable)
                )
            )
        if stable >= end_offset:
            return AbortedInSegment(found, is_complete=True)
    return AbortedInSegment(found, is_complete=False)


def _offset(offsets: bytes, at: int) -> tuple[int, int]:
    return _OFFSET_ENTRY.unpack_from(offsets, at * 8)


def _time(times: bytes, at: int) -> tuple[int, int]:
    return _TIME_ENTRY.unpack_from(times, at * 12)


def _abort(aborts: bytes, at: int) -> tuple[int, int, int, int, int]:
    return _ABORT_ENTRY.unpack_from(aborts, at * 34)
