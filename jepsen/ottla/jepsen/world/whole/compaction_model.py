"""Expected content of a compacted log: the batches that were written, and the state derived from
them.

Invariants:

- ReadsAsWritten: a record read at an offset is the one written there;
- OrderKept: records are read in the order of their offsets;
- HeadIsWhole: no record from the first dirty offset on is missing;
- FinalState: a reader from the start ends with the last value of every key;
- TombstonesStay: the last deletion of a key is readable for at least `delete.retention.ms`;
- AbortedStayHidden: no read_committed consumer reads an aborted record;
- DuplicateIsSeen: the last batch of a producer is recognised as a duplicate;
- OldIsGone: at the end of a run, all records that compaction may remove are removed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.jepsen.world.violation import Violation
from ottla.model.ids import Offset
from ottla.storage.log.log import Log
from ottla.storage.log.log_reader import LogRead
from ottla.wire.batch import BatchHeader, batches
from ottla.wire.records import scan

READ_BYTES = 1 << 20


class KeyedRecord(NamedTuple):
    """One record of a compacted log, as it was written."""

    key: bytes
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A batch of a compacted log, and the offset at which it was written."""

    base_offset: int
    records: tuple[KeyedRecord, ...]
    data: bytes
    written_ms: int
    producer_id: int = -1
    is_transactional: bool = False
    is_abort: bool | None = None
    """For a control batch: True if it is an abort marker, False if it is a commit marker. None for
    other batches."""

    @property
    def end_offset(self) -> int:
        """Offset directly after this batch, at which the next batch was written."""
        return self.base_offset + max(1, len(self.records))


class ShownRecord(NamedTuple):
    """A record of a compacted log in the form in which a read_committed consumer reads it."""

    offset: int
    record: KeyedRecord


class CompactionModel:
    """All batches that were written to one compacted log."""

    def __init__(self, delete_retention_ms: int) -> None:
        self.batches: list[WrittenBatch] = []
        self.start_offset = 0
        self.cleaned_end = 0
        """Highest offset up to which a compaction has cleaned the log."""
        self._delete_retention_ms = delete_retention_ms

    @property
    def end_offset(self) -> int:
        """End offset of the log that the model describes."""
        return self.batches[-1].end_offset if self.batches else self.start_offset

    def cut(self, end_offset: int) -> None:
        """Remove all written batches from `end_offset` on, including a batch that contains it."""
        self.batches = [each for each in self.batches if each.end_offset <= end_offset]

    def open_transactions(self) -> dict[int, int]:
        """Return the first offset of each producer's open transaction, by producer id."""
        found: dict[int, int] = {}
        for each in self.batches:
            if each.is_abort is not None:
                found.pop(each.producer_id, None)
            elif each.is_transactional:
                found.setdefault(each.producer_id, each.base_offset)
        return found

    def shown(self, end_offset: int) -> Iterator[tuple[int, WrittenBatch, KeyedRecord]]:
        """Yield the written records below an offset that belong to no aborted or open
        transaction."""
        fates = self._fates()
        for index, each in enumerate(self.batches):
            if each.is_abort is None and fates.get(index, True):
                for number, record in enumerate(each.records):
                    offset = each.base_offset + number
                    if self.start_offset <= offset < end_offset:
                        yield offset, each, record

    def _fates(self) -> dict[int, bool]:
        """Return whether each transactional batch is committed, by the batch's index in the list of
        written batches. Batches of open transactions count as not committed."""
        fates: dict[int, bool] = {}
        waiting: dict[int, list[int]] = {}
        for index, each in enumerate(self.batches):
            if each.is_abort is not None:
                for one in waiting.pop(each.producer_id, []):
                    fates[one] = not each.is_abort
            elif each.is_transactional:
                waiting.setdefault(each.producer_id, []).append(index)
                fates[index] = False
        return fates

    # ---- checks

    def judge(self, log: Log, now_ms: int) -> None:
        """Compare all records that a consumer reads from the log with the records that were
        written."""
        stable = int(log.last_stable_offset)
        written = {offset: record for offset, _, record in self.shown(stable)}
        found = shown_in(log, stable)
        before = -1
        for offset, record in found:
            if offset <= before:
                raise Violation("OrderKept", f"{offset} follows {before}")
            before = offset
            if offset not in written:
                raise Violation("AbortedStayHidden", f"offset {offset} is read: {record}")
            if written[offset] != record:
                raise Violation("ReadsAsWritten", f"{offset}: {record}, not {written[offset]}")
        offsets = {offset for offset, _ in found}
        head = [offset for offset in written if offset >= self.cleaned_end]
        missing = [offset for offset in head if offset not in offsets]
        if missing:
            raise Violation("HeadIsWhole", f"{missing} are missing behind {self.cleaned_end}")
        self._judge_state(found, stable, now_ms)

    def _judge_state(self, found: list[ShownRecord], stable: int, now_ms: int) -> None:
        last: dict[bytes, tuple[int, WrittenBatch, KeyedRecord]] = {}
        for offset, batch, record in self.shown(stable):
            last[record.key] = (offset, batch, record)
        state: dict[bytes, int] = {}
        values: dict[bytes, bytes | None] = {}
        for offset, record in found:
            state[record.key], values[record.key] = offset, record.value
        for key, (offset, batch, record) in last.items():
            if record.value is not None:
                if state.get(key) != offset:
                    detail = f"{key!r} ends at {state.get(key)}, written at {offset}"
                    raise Violation("FinalState", detail)
            elif values.get(key) is not None:
                raise Violation("FinalState", f"{key!r} was deleted at {offset} and is there")
            elif now_ms < batch.written_ms + self._delete_retention_ms and key not in values:
                raise Violation("TombstonesStay", f"the deletion of {key!r} at {offset} is gone")

    def judge_cleaned(self, log: Log, end_offset: int) -> None:
        """Check that below `end_offset` the log has no record that compaction may remove."""
        latest = {record.key: at for at, _, record in self.shown(int(log.last_stable_offset))}
        decided = {at for at, _, _ in self.shown(int(log.last_stable_offset))}
        for header, data in batches_of(log):
            for record in scan(data, 0, header):
                if header.is_control or record.offset >= end_offset:
                    continue
                what = f"offset {record.offset}, {record.key!r}"
                if record.offset not in decided:
                    raise Violation("OldIsGone", f"{what}: aborted, and there")
                if latest.get(record.key or b"") != record.offset:
                    raise Violation("OldIsGone", f"{what}: superseded, and there")
                if record.value is None:
                    raise Violation("OldIsGone", f"{what}: a deletion of long ago")


def batches_of(log: Log) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch of a log, read in the same way as a fetch does."""
    offset = log.log_start_offset
    while offset < log.end_offset:
        read = waited_for(partial(_read, log, offset))
        if read.slice is None:
            return
        data = memoryview(bytes_of(read.slice))
        before = offset
        for at, header in batches(data):
            yield header, data[at : at + header.size_bytes]
            offset = Offset(max(offset, header.end_offset))
        if offset == before:
            raise Violation("OrderKept", f"nothing follows at {offset}")


def _read(log: Log, offset: Offset) -> LogRead:
    return log.read(offset, bytes_max=READ_BYTES, end_offset=log.end_offset, at_least_one=True)


def shown_in(log: Log, stable: int) -> list[ShownRecord]:
    """Return the records of a log that a read_committed consumer reads: all records except those
    that a fetch reports as aborted."""
    listed = waited_for(lambda: log.aborted_transactions(log.log_start_offset, Offset(stable)))
    aborted = sorted(listed, key=lambda each: each[1])
    active: set[int] = set()
    found: list[ShownRecord] = []
    for header, data in batches_of(log):
        if header.base_offset >= stable:
            break
        while aborted and aborted[0][1] <= header.last_offset:
            active.add(aborted.pop(0)[0])
        if header.is_control:
            active.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in active:
            continue
        for record in scan(data, 0, header):
            if log.log_start_offset <= record.offset < stable:
                keyed = KeyedRecord(bytes(record.key or b""), record.value, record.timestamp_ms)
                found.append(ShownRecord(record.offset, keyed))
    return found
