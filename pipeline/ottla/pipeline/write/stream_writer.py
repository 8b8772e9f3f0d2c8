"""Writes a streaming query to topics, one micro-batch after the other.

If Spark dies before it has recorded that a batch is complete, it repeats the batch with the same
query id and batch id. A task whose batch is already committed writes nothing. Any other task ends
the open transaction of the earlier attempt, and writes its rows again. Without transactions, all
rows are written again: the `spark.*` headers identify them, and `dropReplays` filters them.
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
    TaskReport,
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
"""Name of the local property that Spark sets for the tasks of a micro-batch. It is undocumented, so
tests check that it still exists."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer that writes one streaming query to topics."""

    def __init__(self, target: SinkTarget) -> None:
        self._target = target

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskReport:
        """Write the rows of one task of one micro-batch to topics, and return the task's report for
        Spark's driver."""
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
        """Commit the transactions that the tasks of a micro-batch have prepared."""
        commit_tasks(self._target, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the transactions that the tasks of a micro-batch have prepared."""
        abort_tasks(self._target, messages)


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> StreamWriter:
    """Return the writer of a streaming query's rows with this schema to topics. Raises ConfigError
    if the schema cannot be written as records.

    In output mode complete (`overwrite`), each batch is appended as in the other modes, so that a
    reader finds the newest result last.
    """
    return StreamWriter(read_target(options, fields_of(schema), is_streaming=True))
