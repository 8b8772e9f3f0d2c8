"""Acquired records of one partition in a ShareFetch response.

Pure. A response contains whole batches, of which the broker has acquired only some offsets. Batches
are decompressed and decoded when their records are requested.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.fetch.fetched import FetchedRecords
from ottla.client.fetch.record_batch import RecordBatch
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.share.acknowledgement_ranges import runs_of
from ottla.model.errors import ProtocolError
from ottla.model.ids import NO_EPOCH, Offset, TopicPartition
from ottla.wire.batch import batches

ACQUIRED_COUNT_MAX = 1_000_000
"""Maximum number of offsets of one partition that a response may report as acquired. A broker locks
at most 10,000 records of a partition, plus the rest of one batch."""


ROWS_COUNT_MIN = 256
"""Minimum number of records that are decoded together, even if the caller requests fewer
records."""


class LockedOffsets(NamedTuple):
    """A range of consecutive offsets with the same delivery count, which the broker has acquired
    for this consumer."""

    first: int
    last: int
    delivery_count: int
    """Number of deliveries of the records, including the present delivery."""


class TakenRecords(NamedTuple):
    """Result of `ShareFetched.take`: the next records, and the acquired offsets before and between
    them that have no record."""

    records: RecordBatch | None
    """Records with the same delivery count. None if no records are left."""
    delivery_count: int
    gaps: list[tuple[int, int]]
    missing: list[tuple[int, int]]
    """Acquired offsets after the last batch of the response. The response does not contain their
    records."""


class ShareFetched:
    """Acquired records of one partition in a ShareFetch response."""

    def __init__(
        self,
        at: TopicPartition,
        data: bytes | memoryview,
        acquired: Iterable[LockedOffsets],
        *,
        check_crcs: bool = True,
        decoder: RecordDecoder | None = None,
    ) -> None:
        """Check the acquired ranges and the headers of the batches, and store them.

        Raises ProtocolError if the ranges are out of order or too large, and CorruptDataError if
        the header of a batch is malformed.
        """
        self.at = at
        self._data = data
        self._left = deque(_checked(at, acquired))
        first = self._left[0].first if self._left else 0
        self._fetched = FetchedRecords(
            at, Offset(first), NO_EPOCH, data, check_crcs=check_crcs, decoder=decoder
        )
        self._rows: RecordBatch | None = None

    @property
    def is_drained(self) -> bool:
        """True if all acquired offsets have been returned."""
        return not self._left

    def left(self) -> list[tuple[int, int]]:
        """Return the acquired offsets that have not been returned yet, as pairs of first and last
        offset."""
        return [(one.first, one.last) for one in self._left]

    def clear(self) -> None:
        """Drop the acquired offsets that have not been returned yet."""
        self._left.clear()

    def take(self, count: int) -> TakenRecords:
        """Return the next records, at most `count`. All have the same delivery count.

        Raises CorruptDataError, with topic, partition and offset, if the next batch is corrupt.
        """
        gaps: list[tuple[int, int]] = []
        while self._left:
            if self._rows is None:
                self._rows = self._fetched.take_batch(max(count, ROWS_COUNT_MIN))
            rows, acquired = self._rows, self._left[0]
            if rows is None:
                more, missing = self._rest_before(self._fetched.end_offset)
                return TakenRecords(None, 0, gaps + more, missing)
            start = bisect_left(rows.offsets, acquired.first)
            end = bisect_right(rows.offsets, acquired.last)
            if start == len(rows):
                self._rows = None
            elif start == end:
                gaps.append((acquired.first, acquired.last))
                self._left.popleft()
            else:
                found = rows[start : min(end, start + count)]
                gaps += _holes(acquired.first, found.offsets)
                last = found.offsets[-1]
                if last == acquired.last:
                    self._left.popleft()
                else:
                    self._left[0] = acquired._replace(first=last + 1)
                return TakenRecords(found, acquired.delivery_count, gaps, [])
        return TakenRecords(None, 0, gaps, [])

    def skip_corrupt(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the acquired offsets that remain after `take` has raised CorruptDataError, in two
        lists of pairs (first offset, last offset). The first list contains the offsets of the
        corrupt batch, and the second list the offsets after that batch."""
        position = max(self._fetched.offset, self._left[0].first)
        end = next(
            (
                header.end_offset
                for _, header in batches(self._data, is_partial_end_allowed=True)
                if header.end_offset > position
            ),
            position + 1,
        )
        return self._rest_before(end)

    def _rest_before(self, end: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the remaining acquired offsets, in two lists of pairs (first offset, last offset).
        The first list contains the offsets below `end`, and the second list all other offsets."""
        below = [(first, min(last, end - 1)) for first, last in self.left() if first < end]
        behind = [(max(first, end), last) for first, last in self.left() if last >= end]
        self._left.clear()
        return below, behind


def _checked(at: TopicPartition, acquired: Iterable[LockedOffsets]) -> list[LockedOffsets]:
    found: list[LockedOffsets] = []
    count, end = 0, 0
    for one in acquired:
        if not end <= one.first <= one.last:
            raise ProtocolError(f"the acquired offsets of {at} are out of order")
        count, end = count + one.last + 1 - one.first, one.last + 1
        if count > ACQUIRED_COUNT_MAX:
            raise ProtocolError(f"more than {ACQUIRED_COUNT_MAX:,} offsets of {at} are acquired")
        found.append(one)
    return found


def _holes(first: int, offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return the offsets from `first` to the last of `offsets` that are missing in `offsets`, as
    pairs of first and last offset."""
    found: list[tuple[int, int]] = []
    for start, end in runs_of(offsets):
        if first < start:
            found.append((first, start - 1))
        first = end + 1
    return found
