"""Checks of a segment's three indexes against its log.

The caller iterates over the log's batches once, and calls `on_batch` of each check for each batch,
then `finish` after the last batch. These methods return the entries that have been checked by then.
Entries and batches are read in parallel, and are not stored.

- An offset entry is valid if a batch begins at its position and ends with its offset.
- A time entry is valid if the batch with its offset has the largest timestamp up to that batch, and
  this timestamp equals the timestamp in the entry.
- An aborted transaction is valid if a control batch of its producer has its last offset.
"""

from collections.abc import Iterator

from ottla.storage.inspection.batch_walk import BatchRow, Problem
from ottla.storage.inspection.dump import (
    AbortedTransactionRow,
    Entry,
    OffsetIndexRow,
    TimeIndexRow,
    offset_entries,
    time_entries,
    transaction_entries,
)
from ottla.storage.inspection.readable import Readable
from ottla.storage.segments.files import OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from ottla.wire.batch import NO_TIMESTAMP

Checked = Entry | Problem


class _IndexCheck:
    """Base class of the checks of a segment's three indexes against its log. A check reads one
    index entry ahead of the batches."""

    def __init__(self, entries: Iterator[Checked]) -> None:
        self._entries = entries
        self._next: Entry | None = None

    def _peek(self, decided: list[Checked]) -> Entry | None:
        """Return the next index entry without consuming it, or None at the end. Problems of the
        index file are appended to `decided`."""
        while self._next is None:
            found = next(self._entries, None)
            if found is None:
                return None
            if isinstance(found, Entry) and found.problem is None:
                self._next = found
            else:
                decided.append(found)
        return self._next

    def _decide(self, decided: list[Checked], problem: str | None) -> None:
        assert self._next is not None
        decided.append(self._next._replace(problem=problem))
        self._next = None

    def finish(self, end: str) -> Iterator[Checked]:
        """Yield the index entries that are left after the segment's last batch. `end` describes the
        end of the log in reports."""
        decided: list[Checked] = []
        while self._peek(decided) is not None:
            self._decide(decided, f"it is beyond {end}")
            yield from decided
            decided.clear()
        yield from decided


class OffsetIndexCheck(_IndexCheck):
    """The check of an offset index (`.index`) against the segment's batches."""

    def __init__(self, file: Readable, base_offset: int) -> None:
        super().__init__(offset_entries(file, base_offset))

    def on_batch(self, batch: BatchRow) -> list[Checked]:
        """Check the index entries whose positions are below the end of the batch, and return
        them."""
        decided: list[Checked] = []
        while (entry := self._peek(decided)) is not None:
            assert isinstance(entry.row, OffsetIndexRow)
            offset, position = entry.row
            if position >= batch.position + batch.size_bytes:
                break
            problem = None
            if position != batch.position:
                problem = f"position {position} lies within the batch at {batch.position}"
            elif offset != batch.last_offset:
                problem = f"the batch at {position} ends with offset {batch.last_offset}"
            self._decide(decided, problem)
        return decided


class TimeIndexCheck(_IndexCheck):
    """The check of a time index (`.timeindex`) against the segment's batches."""

    def __init__(self, file: Readable, base_offset: int) -> None:
        super().__init__(time_entries(file, base_offset))
        self._largest_ms = NO_TIMESTAMP

    def on_batch(self, batch: BatchRow) -> list[Checked]:
        """Check the index entries whose offsets are at most the last offset of the batch, and
        return them."""
        decided: list[Checked] = []
        largest_before_ms = self._largest_ms
        self._largest_ms = max(largest_before_ms, batch.max_timestamp)
        while (entry := self._peek(decided)) is not None:
            assert isinstance(entry.row, TimeIndexRow)
            timestamp_ms, offset = entry.row
            if offset > batch.last_offset:
                break
            problem = None
            if offset < batch.base_offset:
                problem = f"no batch contains offset {offset}"
            elif timestamp_ms != self._largest_ms:
                problem = f"the largest timestamp up to offset {offset} is {self._largest_ms}"
            elif largest_before_ms >= timestamp_ms:
                problem = f"timestamp {timestamp_ms} is that of a batch before offset {offset}"
            self._decide(decided, problem)
        return decided


class TransactionIndexCheck(_IndexCheck):
    """The check of a transaction index (`.txnindex`) against the segment's batches."""

    def __init__(self, file: Readable) -> None:
        super().__init__(transaction_entries(file))

    def on_batch(self, batch: BatchRow) -> list[Checked]:
        """Check the index entries whose last offsets are at most the last offset of the batch, and
        return them."""
        decided: list[Checked] = []
        while (entry := self._peek(decided)) is not None:
            assert isinstance(entry.row, AbortedTransactionRow)
            row = entry.row
            if row.last_offset > batch.last_offset:
                break
            problem = None
            is_marker = batch.is_control and batch.producer_id == row.producer_id
            if row.last_offset < batch.base_offset or not is_marker:
                problem = f"offset {row.last_offset} has no marker of producer {row.producer_id}"
            self._decide(decided, problem)
        return decided


AnyIndexCheck = OffsetIndexCheck | TimeIndexCheck | TransactionIndexCheck


def check_of(suffix: str, file: Readable, base_offset: int) -> AnyIndexCheck:
    """Return the check of an index file against its log. The suffix of the file name selects one of
    the three checks."""
    if suffix == OFFSET_INDEX:
        return OffsetIndexCheck(file, base_offset)
    if suffix == TIME_INDEX:
        return TimeIndexCheck(file, base_offset)
    assert suffix == TRANSACTION_INDEX
    return TransactionIndexCheck(file)
