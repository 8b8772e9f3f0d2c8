"""Writes the rows of one Spark task to their topics, in order, with headers that identify the task
and batch.

Spark's iterator is read in a thread of its own, one batch ahead, while the producer works in this
thread. If a record is not delivered, no later record is written, so that the next attempt at the
task continues where this one ended. Invariant: APrefixOfEachPartition (an attempt writes a prefix
of the task's records in each partition).
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import trio

from ottla.client.produce.producer_identities import ProducerIdentities
from ottla.client.producer import Producer, open_producer
from ottla.client.transactions.prepared_transactions import PreparedTransaction
from ottla.model.errors import only_error
from ottla.pipeline.write.provenance import Stamps, WriteId
from ottla.pipeline.write.row_sender import RowSender
from ottla.pipeline.write.sink_options import Columns, SinkTarget
from ottla.pipeline.write.task_transactions import (
    note,
    open_notes,
    transactional_id,
)

IDENTITIES = ProducerIdentities()
"""Producer ids and epochs that successive tasks of a worker process share. Otherwise a query with
one batch per second would leave some 100,000 producers a day in the brokers' memory, for each
partition."""
SORT_ORDER = ("topic", "partition", "key", "value")


class ProducedRows(NamedTuple):
    """Result of writing the rows of one Spark task to topics."""

    record_count: int
    prepared: PreparedTransaction | None = None
    """Prepared transaction of the task, for Spark's driver to commit. None if there are no
    transactions, or if an earlier attempt at the same batch is already committed."""


def produce_rows(
    batches: Iterator[pa.RecordBatch], target: SinkTarget, write: WriteId
) -> ProducedRows:
    """Write all rows of a Spark task to their topics and wait for their delivery. Returns the
    number of records, and the prepared transaction if there is one.

    Raises RefusedError if a row has no topic, a record is too large, a topic or partition is
    unknown, or the cluster did not accept a record in time.
    """
    if target.options.sort_rows:
        batches = sorted_rows(batches, target.columns)
    try:
        return trio.run(_produce, batches, target, write)
    except BaseExceptionGroup as group:
        raise only_error(group) from None


async def _produce(
    batches: Iterator[pa.RecordBatch], target: SinkTarget, write: WriteId
) -> ProducedRows:
    first = await _next(batches)
    if first is None:
        return ProducedRows(0)
    batches = chain([first], batches)
    if target.is_transactional:
        return await _produce_once(batches, target, write)
    async with open_producer(
        target.bootstrap, target.producer_config(), ends_at_failure=True, identities=IDENTITIES
    ) as producer:
        sender = await _send_all(batches, producer, target, write)
    return ProducedRows(sender.sent_count)


async def _produce_once(
    batches: Iterator[pa.RecordBatch], target: SinkTarget, write: WriteId
) -> ProducedRows:
    config = target.producer_config(transactional_id(target, write))
    async with open_notes(target, config, write) as is_committed:
        # This is checked before the producer starts, because its start ends the transaction of a
        # concurrent attempt.
        if await is_committed(False):
            return await _skip(batches)
        async with open_producer(target.bootstrap, config) as producer:
            # All transactions of earlier attempts have ended by now, committed or aborted.
            if await is_committed(True):
                return await _skip(batches)
            async with producer.transaction() as transaction:
                sender = await _send_all(batches, producer, target, write)
                if sender.first_topic is None:
                    return ProducedRows(0)
                await note(
                    transaction,
                    target,
                    write,
                    topic=sender.first_topic,
                    record_count=sender.sent_count,
                )
                prepared = await transaction.prepare()
    return ProducedRows(sender.sent_count, prepared)


async def _skip(batches: Iterator[pa.RecordBatch]) -> ProducedRows:
    """Read all rows of a Spark task without writing them. Spark requires that a task reads its
    rows."""
    while await _next(batches) is not None:
        pass
    return ProducedRows(0)


async def _send_all(
    batches: Iterator[pa.RecordBatch], producer: Producer, target: SinkTarget, write: WriteId
) -> RowSender:
    sender = RowSender(producer, target, Stamps(write))
    send, receive = trio.open_memory_channel[pa.RecordBatch](1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read_ahead, batches, send)
        async for batch in receive:
            await sender.send(batch)
    return sender


async def _read_ahead(
    batches: Iterator[pa.RecordBatch], out: trio.MemorySendChannel[pa.RecordBatch]
) -> None:
    async with out:
        while (batch := await _next(batches)) is not None:
            await out.send(batch)


async def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Wait for the next batch of the task's rows, and return it, or None after the last batch. If
    the wait is cancelled, its thread runs until the process ends."""
    return await trio.to_thread.run_sync(next, batches, None, abandon_on_cancel=True)


def sorted_rows(batches: Iterator[pa.RecordBatch], columns: Columns) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a Spark task in a deterministic order: the order depends only on the rows
    themselves.

    All rows are in memory at once. Rows that differ only in their headers keep their order.
    """
    held = list(batches)
    if not held:
        return
    table = pa.Table.from_batches(held)
    places = [place for name in SORT_ORDER if (place := getattr(columns, name)) is not None]
    by = pa.table([table.column(place) for place in places], names=[str(place) for place in places])
    order = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names])
    yield from table.take(order).to_batches()
