"""Leaves out what a repeated Spark task wrote again: the reading side of `provenance`.

A task numbers its records in a partition 0, 1, 2, … and no attempt leaves a gap, so whatever
attempts there were, also two at once: a record is new exactly when its (batch, number) is above
every one seen of its query and task.  Records without provenance are never left out.

Most fetches hold no repetition: that is found by numpy for all records together, and only a fetch
that does hold one is judged record by record.  Pure.  Invariants:

EachRecordOnce        of all copies of a record the first is kept, and no other
NothingIsLostUnseen   where an attempt wrote other rows than the one before it, what is a repetition
                      can not be told: CorruptDataError, or, where data may be lost, kept as new
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
"""A query and the number of its task."""

NUMBER_BITS = 32
"""A record's place is batch << 32 | number: one integer to compare."""
NUMBER_MASK = (1 << NUMBER_BITS) - 1
BATCH_COUNT_MAX = 1 << 63 - NUMBER_BITS
HEADER_COUNT = len(NAMES)


class First(NamedTuple):
    """The record number 0 of a batch, when it was met for the first time."""

    check: bytes
    read_before: int
    """How many records were read before it."""


class Seen(NamedTuple):
    """What was seen last of one task of one query."""

    place: int
    check: bytes
    first: First | None
    """The batch's record number 0; None where that lies before what was read."""


class Stamped(NamedTuple):
    """The records of one fetch that have provenance, in order."""

    rows: Numbers
    """Which records of the fetch they are."""
    tasks: list[Task]
    task: Numbers
    """Each record's index in `tasks`."""
    place: Numbers
    check: pa.BinaryArray


class ReplayFilter:
    """Tells the new records of one topic-partition, read in order, from repeated ones.

    It begins knowing nothing: give it what lies before the range that is wanted as well.
    """

    def __init__(self, *, fail_on_data_loss: bool = True) -> None:
        self._fails = fail_on_data_loss
        self._seen: dict[Task, Seen] = {}
        self._read_count = 0
        self.dropped_count = 0

    def is_unsure(self, margin_count: int) -> bool:
        """Return whether there may be an attempt that began, and ended, before what was read.

        It would end right before the next one begins, so one is sure who has seen the beginning,
        and so many records before it.
        """
        return any(
            seen.first is None or seen.first.read_before < margin_count
            for seen in self._seen.values()
        )

    def keep(self, headers: pa.ListArray) -> Mask | None:
        """Say which records are new, by their `headers` columns; None where all are.

        CorruptDataError: a task was repeated with other rows, so that what it repeated can not be
        told.
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
            mask[row] = self._is_new(task, place, First(check, read_before + row))
        dropped = int(len(mask) - np.count_nonzero(mask))
        self.dropped_count += dropped
        return mask if dropped else None

    def _in_order(self, stamped: Stamped, read_before: int) -> bool:
        """Take note of all records at once, if each of them is new; else of none."""
        order = np.argsort(stamped.task, kind="stable")
        task, place = stamped.task[order], stamped.place[order]
        begins = np.flatnonzero(np.diff(task, prepend=-1))
        rises = np.diff(place) > 0
        rises[begins[1:] - 1] = True
        if not rises.all():
            return False
        latest: dict[Task, Seen] = {}
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
                first: First | None = First(stamped.check[order[at]].as_py(), read_before + row)
            else:
                first = _first_of(seen, last)
            latest[name] = Seen(last, stamped.check[order[end - 1]].as_py(), first)
        self._seen |= latest
        return True

    def _is_new(self, name: Task, place: int, record: First) -> bool:
        seen = self._seen.get(name)
        is_first, check = place & NUMBER_MASK == 0, record.check
        if seen is None or place > seen.place:
            first = record if is_first else _first_of(seen, place)
            self._seen[name] = Seen(place, check, first)
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
        self._seen[name] = Seen(place, check, record if is_first else None)
        return True


def _first_of(seen: Seen | None, place: int) -> First | None:
    """Return record number 0 of the batch of `place`, if it was seen."""
    if seen is None or seen.place >> NUMBER_BITS != place >> NUMBER_BITS:
        return None
    return seen.first


def read_stamps(headers: pa.ListArray) -> Stamped | None:
    """Find the records whose last headers are ours, and read them; None where there are none."""
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
    return Stamped(rows, tasks, task, batch << NUMBER_BITS | seq, fields[4])


def _numbers(texts: pa.BinaryArray) -> Numbers:
    """Return the numbers that are written in decimal digits; -1 for what is none."""
    try:
        found = texts.cast(pa.string()).cast(pa.int64())
        return np.asarray(pc.fill_null(found, -1), dtype=np.int64)
    except pa.ArrowInvalid:
        # Somebody else's headers under our names.
        return np.array(
            [
                int(text) if text is not None and text.isdigit() and len(text) <= 18 else -1
                for text in texts.to_pylist()
            ],
            dtype=np.int64,
        )


def _tasks(query: pa.BinaryArray, partition: Numbers) -> tuple[list[Task], Numbers]:
    """Number the different pairs of query and task."""
    coded = query.dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    partitions, of_row = np.unique(partition, return_inverse=True)
    pairs, task = np.unique(codes * len(partitions) + of_row, return_inverse=True)
    names = coded.dictionary.to_pylist()
    found = [divmod(int(pair), len(partitions)) for pair in pairs]
    return [(names[code], int(partitions[at])) for code, at in found], task.astype(np.int64)


def _records(stamped: Stamped) -> Iterator[tuple[int, Task, int, bytes]]:
    for row, task, place, check in zip(
        stamped.rows.tolist(),
        stamped.task.tolist(),
        stamped.place.tolist(),
        stamped.check.to_pylist(),
        strict=True,
    ):
        yield row, stamped.tasks[task], place, check
