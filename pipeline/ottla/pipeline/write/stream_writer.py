"""Writes a streaming query to topics, one micro-batch after the other.

A batch that Spark repeats, because it died before it wrote down that the batch was done, is written
again under the same query and batch id: `spark.*` headers tell, and `dropReplays` leaves it out.
Commit and abort have nothing to do yet, as in `batch_writer`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from ottla.model.errors import ConfigError
from ottla.pipeline.one_sentence import one_sentence
from ottla.pipeline.write.batch_writer import WRITING, Written, fields_of, this_task
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
            count = produce_rows(iterator, self._target, write)
            return Written(write, task.attemptNumber(), count)


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> StreamWriter:
    """Return the sink for rows of this schema; ConfigError where there can be none.

    In output mode complete (`overwrite`) each batch is appended as in the others: a reader finds
    the newest result last.
    """
    return StreamWriter(read_target(options, fields_of(schema), is_streaming=True))
