"""Reader of a batch query. Spark's driver divides the query into tasks, and executors read the
records of each task."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.pipeline.one_sentence import one_sentence
from ottla.pipeline.read.ranges import OffsetRange, pack
from ottla.pipeline.read.read_options import ReadOptions
from ottla.pipeline.read.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.pipeline.read.cluster_queries import ClusterQueries
    from ottla.pipeline.read.segment_planner import SegmentPlanner

READ = "read from topics"


@dataclass
class TaskPartition(InputPartition):
    """Input partition of one Spark task: its offset ranges, which Spark sends to an executor."""

    ranges: tuple[OffsetRange, ...]


class TopicReader(DataSourceReader):
    """Reader of a batch query over topics. It contains only options, because Spark pickles it and
    sends it to the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the batch query, as one input partition each. Spark calls this
        once."""
        # Executors that only read records need not import the driver's modules.
        from ottla.pipeline.read.cluster_queries import ClusterQueries
        from ottla.pipeline.read.places import batch_ranges

        with one_sentence(READ):
            asking = ClusterQueries(self._options.read)
            try:
                ranges = batch_ranges(asking, self._options)
                if self._options.read.tier is not None:
                    ranges = with_copies(ranges, self._options.read, asking)
            finally:
                asking.close()
        return [*cut(ranges, self._options)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the records of one task of the batch query."""
        return read_task(partition, self._options.read)


def with_copies(
    ranges: list[OffsetRange], options: ReadOptions, asking: "ClusterQueries"
) -> list[OffsetRange]:
    """Divide offset ranges into parts that are read from copied segments, and parts that are read
    from brokers. Returns all parts in order."""
    with closing(open_planner(options, asking)) as planner:
        return planner.split(ranges)


def open_planner(options: ReadOptions, asking: "ClusterQueries") -> "SegmentPlanner":
    """Create and return a finder of copied segments. The caller must close it."""
    from ottla.pipeline.read.segment_planner import SegmentPlanner

    assert options.tier is not None
    is_committed = options.isolation_level == "read_committed"
    return SegmentPlanner(options.tier, asking, is_committed=is_committed)


def cut(ranges: list[OffsetRange], options: SourceOptions) -> list[TaskPartition]:
    """Return the Spark tasks that together read all of the given offset ranges."""
    tasks = pack(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [TaskPartition(task) for task in tasks]


def read_task(partition: InputPartition, options: ReadOptions) -> "Iterator[pa.RecordBatch]":
    """Yield the records of one Spark task. If the query has no records, Spark still starts one
    task, and `partition` then has no ranges."""
    if isinstance(partition, TaskPartition):
        from ottla.pipeline.read.range_reader import read_ranges

        with one_sentence(READ):
            yield from read_ranges(partition.ranges, options)
