"""Filters out records that a repeated Spark task has written again, by the headers of `provenance`.
Pure.

A task numbers its records in a partition 0, 1, 2, … and no attempt leaves a gap. This is true for
any number of attempts, even concurrent ones. A record is therefore new exactly if its (batch,
number) is greater than that of every earlier record from its query and task. Records without
provenance are always kept.

Most fetches contain no repetition. numpy detects that for all records together, and only a fetch
with a repetition is filtered record by record. Invariants:

- EachRecordOnce: of all copies of a record, only the first is kept.
- NothingIsLostUnseen: if an attempt wrote other rows than the attempt before it, repetitions cannot
  be identified. CorruptDataError is then raised; if data may be lost (`failOnDataLoss` is false),
  all records are kept as new.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.errors import CorruptDataError
from ottla.pipeline.write.provenance import NAMES

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Task = tuple[bytes, int]
"""Identity of a Spark task: the id of its query, and the number of the task in the query."""

NUMBER_BITS = 32
"""Number of bits for a record's number within its Spark task. The batch number and the record
number are stored in one integer, batch << 32 | number."""
NUMBER_MASK = (1 << NUMBER_BITS) - 1
BATCH_COUNT_MAX = 1 << 63 - NUMBER_BITS
HEADER_COUNT = len(NAMES)


class FirstRecord(NamedTuple):
    """First occurrence of the record that a Spark task has written as number 0 of a batch."""

    check: bytes
    read_before: int
    """Number of records that the filter of repeated records had read before this record."""


class LastReplayedRecord(NamedTuple):
    """Last record that the filter of repeated records has seen from one Spark task of one query."""

    place: int
    check: bytes
    first: FirstRecord | None
    """Record number 0 of the same batch. None if it precedes the first record that the filter has
    read."""


class StampedRecords(NamedTuple):
    """Records of one fetch that have provenance headers, in order. These headers identify the Spark
    task that wrote a record."""

    rows: Numbers
    """For each record that has headers of a Spark task, its index among all records of the
    fetch."""
    tasks: list[Task]
    task: Numbers
    """For each record, the index in `tasks` of the Spark task that wrote it."""
    place: Numbers
    check: pa.BinaryArray


class ReplayFilter:
    """Filter that separates new records of one topic-partition, read in order, from repeated
    records.

    The filter has no state at the start, so its caller must also pass it some records before the
    requested range.
    """

    def __init__(self, *, fail_on_data_loss: bool = True) -> None:
        self._fails = fail_on_data_loss
        self._seen: dict[Task, LastReplayedRecord] = {}
        self._read_count = 0
        self.dropped_count = 0

    def is_unsure(self, margin_count: int) -> bool:
        """Return True if repetitions may be missed, because a whole attempt at a Spark task may
        precede the first record that was read.

        The next attempt starts right after the end of an earlier attempt. The filter therefore
        finds all repetitions if it has read the start of an attempt, and `margin_count` records
        before that.
        """
        return any(
            seen.first is None or seen.first.read_before < margin_count
            for seen in self._seen.values()
        )

    def keep(self, headers: pa.ListArray) -> Mask | None:
        """Return a mask of the new records, given the column `headers` of all records. Returns None
        if all records are new (none is a repetition).

        Raises CorruptDataError if a Spark task was repeated with other rows, so that repetitions
        cannot be identified.
        """
        stamped = read_stamps(headers)
        read_before = self._read_count
        self._read_count += len(headers)
        if stamped is None:
            return None
        if self._in_order(stamped, read_before):
            return None
        mask = np.ones(len(headers), dtype=np.bool_)
        for row, task, place, check in _records(stamped):
            mask[row] = self._is_new(task, place, FirstRecord(check, read_before + row))
        dropped = int(len(mask) - np.count_nonzero(mask))
        self.dropped_count += dropped
        return mask if dropped else None

    def _in_order(self, stamped: StampedRecords, read_before: int) -> bool:
        """Update the state for all records and return True if no record repeats an earlier record.
        Otherwise return False and change nothing."""
        order = np.argsort(stamped.task, kind="stable")
        task, place = stamped.task[order], stamped.place[order]
        begins = np.flatnonzero(np.diff(task, prepend=-1))
        rises = np.diff(place) > 0
        rises[begins[1:] - 1] = True
        if not rises.all():
            return False
        latest: dict[Task, LastReplayedRecord] = {}
        for begin, end in zip(begins, [*begins[1:], len(task)], strict=True):
            name = stamped.tasks[task[begin]]
            seen = self._seen.get(name)
            if seen is not None and place[begin] <= seen.place:
                return False
            last = int(place[end - 1])
            first_of_batch = last >> NUMBER_BITS << NUMBER_BITS
            at = begin + np.searchsorted(place[begin:end], first_of_batch)
            if place[at] == first_of_batch:
                row = int(stamped.rows[order[at]])
                first: FirstRecord | None = FirstRecord(
                    stamped.check[order[at]].as_py(), read_before + row
                )
            else:
                first = _first_of(seen, last)
            latest[name] = LastReplayedRecord(last, stamped.check[order[end - 1]].as_py(), first)
        self._seen |= latest
        return True

    def _is_new(self, name: Task, place: int, record: FirstRecord) -> bool:
        seen = self._seen.get(name)
        is_first, check = place & NUMBER_MASK == 0, record.check
        if seen is None or place > seen.place:
            first = record if is_first else _first_of(seen, place)
            self._seen[name] = LastReplayedRecord(place, check, first)
            return True
        if place >> NUMBER_BITS != seen.place >> NUMBER_BITS:
            return False
        known = None
        if place == seen.place:
            known = seen.check
        elif is_first and seen.first is not None:
            known = seen.first.check
        if known is None or known == check:
            return False
        if self._fails:
            query, partition = name
            raise CorruptDataError(
                f"batch {place >> NUMBER_BITS} of query "
                f"{query.decode(errors='replace')} was written twice with different rows by task "
                f"{partition}, so dropReplays can not tell which are repeated: write with "
                f"sortRows=true, read without dropReplays or with failOnDataLoss=false"
            )
        self._seen[name] = LastReplayedRecord(place, check, record if is_first else None)
        return True


def _first_of(seen: LastReplayedRecord | None, place: int) -> FirstRecord | None:
    """Return the first record (number 0) of a Spark batch, or None if the filter has not read it.
    `place` contains the batch number and a record number in one integer."""
    if seen is None or seen.place >> NUMBER_BITS != place >> NUMBER_BITS:
        return None
    return seen.first


def read_stamps(headers: pa.ListArray) -> StampedRecords | None:
    """Return the records of a fetch whose headers identify the Spark task that wrote them, or None
    if no record has these headers."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    ends = np.cumsum(counts)
    rows = np.flatnonzero(counts >= HEADER_COUNT)
    names, values = headers.flatten().flatten()
    for index, name in enumerate(NAMES):
        if not len(rows):
            return None
        found = pc.equal(names.take(ends[rows] - HEADER_COUNT + index), name)
        rows = rows[pc.fill_null(found, fill_value=False).to_numpy(zero_copy_only=False)]
    fields = [values.take(ends[rows] - HEADER_COUNT + index) for index in range(HEADER_COUNT)]
    numbers = [_numbers(field) for field in fields[1:4]]
    is_ours = numbers[0] < BATCH_COUNT_MAX
    for field in numbers:
        is_ours &= field >= 0
    for field in (fields[0], fields[4]):
        is_ours &= pc.is_valid(field).to_numpy(zero_copy_only=False)
    is_ours &= numbers[2] <= NUMBER_MASK
    if not is_ours.any():
        return None
    if not is_ours.all():
        rows = rows[is_ours]
        numbers = [field[is_ours] for field in numbers]
        fields = [field.filter(pa.array(is_ours)) for field in fields]
    batch, partition, seq = numbers
    tasks, task = _tasks(fields[0], partition)
    return StampedRecords(rows, tasks, task, batch << NUMBER_BITS | seq, fields[4])


def _numbers(texts: pa.BinaryArray) -> Numbers:
    """Parse decimal texts in an Arrow column to numbers. Any other text becomes -1."""
    try:
        found = texts.cast(pa.string()).cast(pa.int64())
        return np.asarray(pc.fill_null(found, -1), dtype=np.int64)
    except pa.ArrowInvalid:
        # The headers have our names, but were written by other software.
        return np.array(
            [
                int(text) if text is not None and text.isdigit() and len(text) <= 18 else -1
                for text in texts.to_pylist()
            ],
            dtype=np.int64,
        )


def _tasks(query: pa.BinaryArray, partition: Numbers) -> tuple[list[Task], Numbers]:
    """Return the distinct pairs of query and Spark task, and for each record the index of its
    pair."""
    coded = query.dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    partitions, of_row = np.unique(partition, return_inverse=True)
    pairs, task = np.unique(codes * len(partitions) + of_row, return_inverse=True)
    names = coded.dictionary.to_pylist()
    found = [divmod(int(pair), len(partitions)) for pair in pairs]
    return [(names[code], int(partitions[at])) for code, at in found], task.astype(np.int64)


def _records(stamped: StampedRecords) -> Iterator[tuple[int, Task, int, bytes]]:
    for row, task, place, check in zip(
        stamped.rows.tolist(),
        stamped.task.tolist(),
        stamped.place.tolist(),
        stamped.check.to_pylist(),
        strict=True,
    ):
        yield row, stamped.tasks[task], place, check
