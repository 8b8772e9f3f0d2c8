"""Writes a DataFrame to topics: what Spark calls on the driver and in every task.

A task delivers its rows and tells the driver what it wrote; commit and abort have nothing to do
yet.  With transactions a task will leave its own open and tell which it is; commit then ends them
all, and abort undoes them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.model.errors import ConfigError
from ottla.pipeline.one_sentence import one_sentence
from ottla.pipeline.write.produce_rows import produce_rows
from ottla.pipeline.write.provenance import WriteId
from ottla.pipeline.write.sink_options import SinkTarget, read_target

if TYPE_CHECKING:
    import pyarrow as pa

WRITING = "write to topics"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task tells the driver when all its rows are delivered."""

    write: WriteId
    attempt: int
    record_count: int


class BatchWriter(DataSourceArrowWriter):
    """One write of a DataFrame."""

    def __init__(self, target: SinkTarget) -> None:
        self._target = target
        options = target.options
        # Attempts at a task share what the driver drew; a write that is run again draws again.
        self._query = options.txn_app_id or str(uuid4())
        self._batch = options.txn_version or 0

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Written:
        """Write the rows of one task."""
        with one_sentence(WRITING):
            task = this_task()
            write = WriteId(self._query, self._batch, task.partitionId())
            count = produce_rows(iterator, self._target, write)
            return Written(write, task.attemptNumber(), count)


def make_batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> BatchWriter:
    """Return the writer of a DataFrame with this schema; ConfigError where it can not be."""
    if overwrite:
        raise ConfigError("mode", "is overwrite; records are only ever appended to a topic")
    return BatchWriter(read_target(options, fields_of(schema), is_streaming=False))


def fields_of(schema: StructType) -> list[tuple[str, str]]:
    """Return the name and the type of each column."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def this_task() -> TaskContext:
    """Return the Spark task that runs this."""
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    return task
