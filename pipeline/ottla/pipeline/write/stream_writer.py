"""Writes a streaming query to topics, one micro-batch after the other.

A batch that Spark repeats, because it died before it wrote down that the batch was done, has the
same query and batch id: tasks that find themselves committed write nothing, others end what the
earlier attempt left open and write again.  Without transactions all is written again: `spark.*`
headers tell, and `dropReplays` leaves it out.
"""

# ruff: noqa: N803 - Spark names these parameters

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.model.errors import ConfigError
from ottla.pipeline.one_sentence import one_sentence
from ottla.pipeline.write.batch_writer import (
    WRITING,
    Written,
    abort_tasks,
    commit_tasks,
    fields_of,
    this_task,
    written,
)
from ottla.pipeline.write.produce_rows import produce_rows
from ottla.pipeline.write.provenance import WriteId
from ottla.pipeline.write.sink_options import SinkTarget, read_target

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a micro-batch.  No documentation names them:
tests look whether they are still there."""


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of one streaming query."""

    def __init__(self, target: SinkTarget) -> None:
        self._target = target

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Written:
        """Write the rows of one task of one micro-batch."""
        with one_sentence(WRITING):
            task = this_task()
            query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
            if query is None or batch is None:
                raise ConfigError(
                    "format", "this Spark does not tell tasks of which batch they are: it is too "
                    "new or too old for this sink"
                )  # fmt: skip
            write = WriteId(query, int(batch), task.partitionId())
            return written(write, task, produce_rows(iterator, self._target, write))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit what the tasks of a batch have prepared."""
        commit_tasks(self._target, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort what tasks have prepared."""
        abort_tasks(self._target, messages)


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> StreamWriter:
    """Return the sink for rows of this schema; ConfigError where there can be none.

    In output mode complete (`overwrite`) each batch is appended as in the others: a reader finds
    the newest result last.
    """
    return StreamWriter(read_target(options, fields_of(schema), is_streaming=True))
