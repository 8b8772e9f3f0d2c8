"""Which records one Spark task reads: offsets of partitions, cut and packed.

A task has a fixed cost of about 0.1 s, so small ranges share one; large ones are cut where the user
asks for it.  Pure, and the same ranges with the same options always give the same tasks: a batch
that is repeated must find the records of each of its tasks again.  Invariants: EveryRecordOnce,
BoundedTask (no task has more than `max_records`), EnoughTasks.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import NamedTuple

RECORDS_PER_TASK_MIN = 10_000
"""Ranges share a task until it has so many.  Smaller, and a task's fixed cost exceeds its work."""
TASK_COUNT = 8
"""So many tasks keep the cores of a usual machine at work, whatever is done with the records."""
RECORDS_PER_TASK = 100_000
"""Where there are tasks enough, ranges share one until it has so many.  Larger, and the last tasks
of a large batch leave cores idle; smaller, and many partitions cost a task each."""


class OffsetRange(NamedTuple):
    """The records of one partition in [start, end); of a compacted log some may be gone."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    """As Kafka writes it, where it is known: another topic of the name has other records."""

    @property
    def record_count(self) -> int:
        """How many records there are at most."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def pack(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """Return what each task reads, in order of topic, partition and offset; empty ranges go.

    `min_partitions` (`minPartitions`) asks for at least so many tasks, as far as there are records;
    `max_records` (`maxRecordsPerPartition`) for tasks of at most so many records.
    """
    wanted = sorted(one for one in ranges if one.record_count > 0)
    pieces = _cut(wanted, min_partitions or 1, max_records)
    total = sum(one.record_count for one in wanted)
    count = min(len(pieces), max(min_partitions or 1, task_count(total)))
    tasks = _share_out(pieces, count, max_records)
    assert sum(one.record_count for task in tasks for one in task) == total
    return tasks


def task_count(record_count: int) -> int:
    """Return how many tasks so many records are worth.

    It does not ask how many cores there are: a batch that is repeated may find others.
    """
    few = min(TASK_COUNT, -(-record_count // RECORDS_PER_TASK_MIN))
    return max(few, -(-record_count // RECORDS_PER_TASK))


def _cut(
    ranges: Sequence[OffsetRange], min_partitions: int, max_records: int | None
) -> list[OffsetRange]:
    """Cut ranges until each piece is small enough and there are enough of them."""
    parts = [-(-one.record_count // max_records) if max_records else 1 for one in ranges]
    missing = min_partitions - sum(parts)
    # The range with the largest pieces is cut further, first come first where two are alike.
    largest = [
        (-one.record_count / n, i) for i, (one, n) in enumerate(zip(ranges, parts, strict=True))
    ]
    heapify(largest)
    while missing > 0 and largest and largest[0][0] < -1:
        index = largest[0][1]
        parts[index] += 1
        heapreplace(largest, (-ranges[index].record_count / parts[index], index))
        missing -= 1
    return [piece for one, n in zip(ranges, parts, strict=True) for piece in _evenly(one, n)]


def _evenly(one: OffsetRange, count: int) -> Iterable[OffsetRange]:
    edges = [one.start + one.record_count * index // count for index in range(count + 1)]
    assert edges[-1] == one.end
    return [one._replace(start=low, end=high) for low, high in pairwise(edges)]


def _share_out(
    pieces: Sequence[OffsetRange], count: int, max_records: int | None
) -> list[tuple[OffsetRange, ...]]:
    """Give the largest pieces first, each to the task that has least; open tasks where needed."""
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for piece in sorted(pieces, key=lambda one: (-one.record_count, one)):
        load, index = loads[0]
        if max_records and load + piece.record_count > max_records:
            # What does not fit into the task that has least fits into none.
            tasks.append([piece])
            continue
        tasks[index].append(piece)
        heapreplace(loads, (load + piece.record_count, index))
    return sorted(tuple(sorted(task)) for task in tasks if task)
