"""Writes a DataFrame to topics. Spark calls these classes on the driver and in every task.

A task delivers its rows and returns a summary to the driver. With transactions, each task leaves
its own transaction open and returns the identity of the transaction. The driver then commits or
aborts the transactions of all tasks, one after the other.
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
class TaskReport(WriterCommitMessage):
    """Report that a Spark task sends to the driver after all its rows are delivered."""

    write: WriteId
    attempt: int
    record_count: int
    prepared: PreparedTransaction | None
    """Prepared transaction of the task, which the driver has to commit or abort. None if the write
    uses no transactions."""


class BatchWriter(DataSourceArrowWriter):
    """Writer that writes one DataFrame to topics."""

    def __init__(self, target: SinkTarget) -> None:
        self._target = target
        options = target.options
        # All attempts at a task share the driver's random id.  A repeated write gets a new one.
        self._query = options.txn_app_id or str(uuid4())
        self._batch = options.txn_version or 0

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> TaskReport:
        """Write the rows of one Spark task to topics, and return the task's report for Spark's
        driver."""
        with one_sentence(WRITING):
            task = this_task()
            write = WriteId(self._query, self._batch, task.partitionId())
            return written(write, task, produce_rows(iterator, self._target, write))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the transactions that the tasks of this write have prepared."""
        commit_tasks(self._target, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the transactions that the tasks of this write have prepared."""
        abort_tasks(self._target, messages)


def written(write: WriteId, task: TaskContext, produced: ProducedRows) -> TaskReport:
    """Return the report of a Spark task that has written its rows, for the driver."""
    return TaskReport(write, task.attemptNumber(), produced.record_count, produced.prepared)


def commit_tasks(target: SinkTarget, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit the prepared transactions of a batch's Spark tasks. Raises TopicError if a commit
    fails."""
    with one_sentence(WRITING):
        _end(target, messages, is_commit=True)


def abort_tasks(target: SinkTarget, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort the prepared transactions of a batch's Spark tasks. If an abort fails, the transaction
    ends by its timeout."""
    try:
        _end(target, messages, is_commit=False)
    except (OttlaError, ConnectionLostError) as error:
        logger.warning("a batch that failed is aborted at its timeout only: %s", error)


def _end(
    target: SinkTarget, messages: Sequence[WriterCommitMessage | None], *, is_commit: bool
) -> None:
    prepared = [
        one.prepared for one in messages if isinstance(one, TaskReport) and one.prepared is not None
    ]
    if prepared:
        trio.run(partial(end_transactions, target, prepared, is_commit=is_commit))


def make_batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> BatchWriter:
    """Return the writer of a DataFrame with this schema to topics. Raises ConfigError if the schema
    cannot be written as records."""
    if overwrite:
        raise ConfigError("mode", "is overwrite; records are only ever appended to a topic")
    return BatchWriter(read_target(options, fields_of(schema), is_streaming=False))


def fields_of(schema: StructType) -> list[tuple[str, str]]:
    """Return the name and the type of each column in a Spark schema."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def this_task() -> TaskContext:
    """Return the context of the Spark task that is running."""
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    return task
