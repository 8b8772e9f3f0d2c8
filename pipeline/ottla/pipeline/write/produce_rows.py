"""Writes the rows of one Spark task to their topics, in order, with their provenance.

Spark's iterator is read in a thread of its own, one batch ahead, while the producer works in this
one.  Nothing is written behind a record that was not delivered, so that the next attempt at the
task goes on where this one ended.  Invariant: APrefixOfEachPartition (of what the task has for it).
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import trio

from ottla.client.produce.partitioner import Partitioner
from ottla.client.produce.producer_identities import ProducerIdentities
from ottla.client.producer import Producer, open_producer
from ottla.client.transactions.prepared_transactions import PreparedTransaction
from ottla.model.errors import ErrorCode, RefusedError, only_error
from ottla.pipeline.write.key_hashes import key_hashes
from ottla.pipeline.write.provenance import Stamps, WriteId
from ottla.pipeline.write.sink_options import Columns, SinkTarget
from ottla.pipeline.write.task_transactions import (
    note,
    open_notes,
    transactional_id,
)
from ottla.wire.batch_builder import EncodedHeaders, Headers

IDENTITIES = ProducerIdentities()
"""Shared by the tasks that a worker process runs one after the other: a query of a batch a second
would otherwise leave the brokers some 100,000 producers a day to remember, for each partition."""
SORT_ORDER = ("topic", "partition", "key", "value")


class ProduceRow(NamedTuple):
    """One row, as far as it makes a record."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    topic: str | None
    partition: int | None


class ProducedRows(NamedTuple):
    """What one task has written."""

    record_count: int
    prepared: PreparedTransaction | None = None
    """What the driver has to commit; None without transactions, and where an earlier attempt at the
    same batch is committed."""


def produce_rows(
    batches: Iterator[pa.RecordBatch], target: SinkTarget, write: WriteId
) -> ProducedRows:
    """Write all rows and wait until they are delivered.

    RefusedError: a row has no topic, a record is too large, there is no such topic or partition,
    or the cluster did not take it in time.
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
        # Asked before anything of an attempt that goes on beside this one is ended.
        if await is_committed(False):
            return await _skip(batches)
        async with open_producer(target.bootstrap, config) as producer:
            # All that earlier attempts left is ended now, committed or not.
            if await is_committed(True):
                return await _skip(batches)
            async with producer.transaction() as transaction:
                sender = await _send_all(batches, producer, target, write)
                topic, count = sender.topics[0], sender.sent_count
                await note(transaction, target, write, topic=topic, record_count=count)
                prepared = await transaction.prepare()
    return ProducedRows(sender.sent_count, prepared)


async def _skip(batches: Iterator[pa.RecordBatch]) -> ProducedRows:
    """Read all rows, as Spark expects of a task, and write none."""
    while await _next(batches) is not None:
        pass
    return ProducedRows(0)


async def _send_all(
    batches: Iterator[pa.RecordBatch], producer: Producer, target: SinkTarget, write: WriteId
) -> "_Sender":
    sender = _Sender(producer, Partitioner(target.producer_config().partitioner), Stamps(write))
    send, receive = trio.open_memory_channel[pa.RecordBatch](1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read_ahead, batches, send)
        async for batch in receive:
            await sender.send(batch, target)
    return sender


async def _read_ahead(
    batches: Iterator[pa.RecordBatch], out: trio.MemorySendChannel[pa.RecordBatch]
) -> None:
    async with out:
        while (batch := await _next(batches)) is not None:
            await out.send(batch)


async def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Wait for the next batch; a wait that is given up leaves its thread to the process's end."""
    return await trio.to_thread.run_sync(next, batches, None, abandon_on_cancel=True)


class _Sender:
    """Makes records of rows."""

    def __init__(self, producer: Producer, partitioner: Partitioner, stamps: Stamps) -> None:
        self._producer = producer
        self._partitioner = partitioner
        self._stamps = stamps
        self.sent_count = 0
        self._topics: dict[str, None] = {}
        self._counts: dict[str, int] = {}
        """Partitions of each topic as they were at its first row: what is added later is for later
        tasks, so that all rows of this one are dealt out alike."""

    @property
    def topics(self) -> list[str]:
        """The topics that were written to, in the order of their first rows."""
        return list(self._topics)

    async def send(self, batch: pa.RecordBatch, target: SinkTarget) -> None:
        """Hand all rows of a batch to the producer."""
        stamps, producer = self._stamps, self._producer
        hashes = self._key_hashes(batch, target.columns.key)
        for row, key_hash in zip(rows_of(batch, target.columns), hashes, strict=True):
            topic = target.options.topic or row.topic
            if topic is None:
                raise RefusedError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    "a row has no topic: its column topic is null, and the option is not set",
                )
            self._topics[topic] = None
            partition, chosen_among = row.partition, 0
            if partition is None:
                chosen_among = self._counts.get(topic) or await self._count(topic)
                if key_hash is not None and row.key is not None:
                    partition = key_hash % chosen_among
                elif row.key is not None:
                    partition = self._partitioner.partition_of(row.key, chosen_among)
                if partition is None:
                    partition = stamps.next_turn(topic, chosen_among)
            headers: Headers | EncodedHeaders = row.headers
            if target.options.provenance:
                headers = stamps.stamp(
                    topic, partition, row.key, row.value, row.headers, chosen_among=chosen_among
                )
            await producer.send(topic, row.value, key=row.key, partition=partition, headers=headers)
            self.sent_count += 1

    def _key_hashes(self, batch: pa.RecordBatch, place: int | None) -> Sequence[int | None]:
        """Hash all keys of a batch at once, where that is how the partitioner hashes."""
        if place is None or self._partitioner is not Partitioner.MURMUR2_RANDOM:
            return [None] * batch.num_rows
        hashes: list[int] = key_hashes(batch[place].cast(pa.binary())).tolist()
        return hashes

    async def _count(self, topic: str) -> int:
        count = len(await self._producer.partitions_of(topic))
        self._counts[topic] = count
        return count


def rows_of(batch: pa.RecordBatch, columns: Columns) -> Iterator[ProduceRow]:
    """Yield the rows of a batch; text becomes UTF-8."""
    return map(
        ProduceRow._make,
        zip(
            _contents(batch, columns.value),
            _contents(batch, columns.key),
            _headers(batch, columns.headers),
            _values(batch, columns.topic),
            _values(batch, columns.partition),
            strict=True,
        ),
    )


def _values(batch: pa.RecordBatch, place: int | None) -> Sequence[Any]:
    values: list[Any] = [None] * batch.num_rows if place is None else batch[place].to_pylist()
    return values


def _contents(batch: pa.RecordBatch, place: int | None) -> Sequence[bytes | None]:
    if place is None:
        return _values(batch, place)
    values: list[bytes | None] = batch[place].cast(pa.binary()).to_pylist()
    return values


def _headers(batch: pa.RecordBatch, place: int | None) -> Sequence[Headers]:
    return [
        tuple((one["key"], one["value"]) for one in row) if row else ()
        for row in _values(batch, place)
    ]


def sorted_rows(batches: Iterator[pa.RecordBatch], columns: Columns) -> Iterator[pa.RecordBatch]:
    """Yield all rows in an order that depends on nothing but themselves.

    It holds them all in memory.  Rows that differ in headers alone keep the order they came in.
    """
    held = list(batches)
    if not held:
        return
    table = pa.Table.from_batches(held)
    places = [place for name in SORT_ORDER if (place := getattr(columns, name)) is not None]
    by = pa.table([table.column(place) for place in places], names=[str(place) for place in places])
    order = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names])
    yield from table.take(order).to_batches()
