"""Writes a DataFrame to topics: what Spark calls on the driver and in every task.

A task delivers its rows and returns to the driver what it wrote.  With transactions it leaves its
own open and returns which it is; commit ends them all, one after the other, and abort undoes them.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import trio
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.client.network.connection import ConnectionLostError
from ottla.client.transactions.prepared_transactions import PreparedTransaction
from ottla.model.errors import ConfigError, OttlaError
from ottla.pipeline.one_sentence import one_sentence
from ottla.pipeline.write.produce_rows import ProducedRows, produce_rows
from ottla.pipeline.write.provenance import WriteId
from ottla.pipeline.write.sink_options import SinkTarget, read_target
from ottla.pipeline.write.task_transactions import end_transactions

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("ottla.pipeline")

WRITING = "write to topics"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task tells the driver when all its rows are delivered."""

    write: WriteId
    attempt: int
    record_count: int
    prepared: PreparedTransaction | None
    """The transaction that the driver has to end."""


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
            return written(write, task, produce_rows(iterator, self._target, write))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks have prepared."""
        commit_tasks(self._target, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort what tasks have prepared."""
        abort_tasks(self._target, messages)


def written(write: WriteId, task: TaskContext, produced: ProducedRows) -> Written:
    """Return what a task tells the driver."""
    return Written(write, task.attemptNumber(), produced.record_count, produced.prepared)


def commit_tasks(target: SinkTarget, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit what the tasks of a batch have prepared; TopicError where that can not be."""
    with one_sentence(WRITING):
        _end(target, messages, is_commit=True)


def abort_tasks(target: SinkTarget, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort what tasks have prepared; what can not be asked for now ends by its timeout."""
    try:
        _end(target, messages, is_commit=False)
    except (OttlaError, ConnectionLostError) as error:
        logger.warning("a batch that failed is aborted at its timeout only: %s", error)


def _end(
    target: SinkTarget, messages: Sequence[WriterCommitMessage | None], *, is_commit: bool
) -> None:
    prepared = [
        one.prepared for one in messages if isinstance(one, Written) and one.prepared is not None
    ]
    if prepared:
        trio.run(partial(end_transactions, target, prepared, is_commit=is_commit))


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
