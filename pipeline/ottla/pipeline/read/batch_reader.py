"""Reads topics once: a batch query's driver side, which plans, and its tasks, which read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.pipeline.one_sentence import one_sentence
from ottla.pipeline.read.ranges import OffsetRange, pack
from ottla.pipeline.read.read_options import ReadOptions
from ottla.pipeline.read.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

READ = "read from topics"


@dataclass
class TaskPartition(InputPartition):
    """What one task reads."""

    ranges: tuple[OffsetRange, ...]


class TopicReader(DataSourceReader):
    """A batch query; holds options only, for it travels to the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Fix what is read, once, and cut it into tasks."""
        # Executors that only read need not load what asks.
        from ottla.pipeline.read.asking import Asking
        from ottla.pipeline.read.places import batch_ranges

        with one_sentence(READ):
            asking = Asking(self._options.read)
            try:
                ranges = batch_ranges(asking, self._options)
            finally:
                asking.close()
        return [*cut(ranges, self._options)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Read one task's records."""
        return read_task(partition, self._options.read)


def cut(ranges: list[OffsetRange], options: SourceOptions) -> list[TaskPartition]:
    """Return the tasks that read these ranges."""
    tasks = pack(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [TaskPartition(task) for task in tasks]


def read_task(partition: InputPartition, options: ReadOptions) -> "Iterator[pa.RecordBatch]":
    """Read one task's records; of a batch without records Spark makes a task without ranges."""
    if isinstance(partition, TaskPartition):
        from ottla.pipeline.read.range_reader import read_ranges

        with one_sentence(READ):
            yield from read_ranges(partition.ranges, options)
