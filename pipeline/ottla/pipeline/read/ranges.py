"""Distribution of offset ranges to Spark tasks: ranges are split and grouped.

A task has a fixed cost of about 0.1 s, so several small ranges share a task. Large ranges are split
if the user requests it. Pure. The same ranges with the same options always give the same tasks,
because a repeated batch must have the same records in each task. Invariants: EveryRecordOnce,
BoundedTask (no task has more than `max_records`), EnoughTasks.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import NamedTuple

from ottla.storage.tier.remote_segment import RemoteSegment

RECORDS_PER_TASK_MIN = 10_000
"""Number of records per Spark task while a query has fewer than `TASK_COUNT` tasks. With fewer
records, the fixed cost of a task would exceed its work."""
TASK_COUNT = 8
"""Number of Spark tasks that keeps the cores of a typical machine busy."""
RECORDS_PER_TASK = 100_000
"""Number of records up to which offset ranges share a Spark task once there are `TASK_COUNT` tasks.
With a larger number, cores are idle during the last tasks of a large batch. With a smaller number,
each of many partitions gets its own task."""


class SegmentCopy(NamedTuple):
    """A copied segment in an object store (tiered storage), from which a Spark task reads a range
    of offsets."""

    cluster_id: str
    segment: RemoteSegment
    aborted_in: tuple[RemoteSegment, ...]
    """Segments whose transaction indexes list the aborted transactions of the range. Empty for
    read_uncommitted."""


class OffsetRange(NamedTuple):
    """Range of offsets [start, end) in one partition. In a compacted log, some offsets have no
    record."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    """Topic id in Kafka's text form, or empty if it is unknown. The id distinguishes topics of the
    same name."""
    copy: SegmentCopy | None = None
    """Copied segment from which the range is read, or None if it is read from brokers."""

    @property
    def record_count(self) -> int:
        """Number of offsets in the range, which is the maximum number of its records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def pack(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """Return the offset ranges of each Spark task, ordered by topic, partition and offset, without
    empty ranges.

    `min_partitions` (`minPartitions`) is the minimum number of tasks if there are enough records;
    `max_records` (`maxRecordsPerPartition`) is the maximum number of records of a task.
    """
    wanted = sorted(one for one in ranges if one.record_count > 0)
    pieces = _cut(wanted, min_partitions or 1, max_records)
    total = sum(one.record_count for one in wanted)
    count = min(len(pieces), max(min_partitions or 1, task_count(total)))
    tasks = _share_out(pieces, count, max_records)
    assert sum(one.record_count for task in tasks for one in task) == total
    return tasks


def task_count(record_count: int) -> int:
    """Return the number of Spark tasks for `record_count` records.

    The result does not depend on the number of processor cores, because a batch may be repeated on
    another machine.
    """
    few = min(TASK_COUNT, -(-record_count // RECORDS_PER_TASK_MIN))
    return max(few, -(-record_count // RECORDS_PER_TASK))


def _cut(
    ranges: Sequence[OffsetRange], min_partitions: int, max_records: int | None
) -> list[OffsetRange]:
    """Split offset ranges until each piece has at most `max_records` records and there are at least
    `min_partitions` pieces, if possible."""
    parts = [-(-one.record_count // max_records) if max_records else 1 for one in ranges]
    missing = min_partitions - sum(parts)
    # The range with the largest pieces is split further.  Of two equal ones, the first is.
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
    """Distribute pieces of offset ranges to Spark tasks, and return the pieces of each task.

    The largest pieces are distributed first, each to the task with the fewest records. If a piece
    does not fit, another task is created.
    """
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for piece in sorted(pieces, key=lambda one: (-one.record_count, one)):
        load, index = loads[0]
        if max_records and load + piece.record_count > max_records:
            # If a piece does not fit into the task with the fewest records, it fits into none.
            tasks.append([piece])
            continue
        tasks[index].append(piece)
        heapreplace(loads, (load + piece.record_count, index))
    return sorted(tuple(sorted(task)) for task in tasks if task)
