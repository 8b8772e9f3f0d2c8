"""Distributes the rows of Arrow batches to partitions, and passes them to a producer in runs of
records.

A row with a value in the partition column is sent to that partition. A row with a key is sent to
the partition for its key's hash. Rows without either are sent to the partitions in turn. The rows
of each partition stay in order.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.produce.partitioner import Partitioner
from ottla.client.producer import Producer
from ottla.model.errors import ErrorCode, RefusedError
from ottla.pipeline.write.key_hashes import key_hashes
from ottla.pipeline.write.provenance import StampedRow, Stamps
from ottla.pipeline.write.record_runs import (
    ColumnRun,
    HeaderColumns,
    as_bytes,
    plain_headers,
    stamped_headers,
)
from ottla.pipeline.write.sink_options import SinkTarget
from ottla.wire.batch_builder import Headers

Numbers = npt.NDArray[np.int64]
NO_PARTITION = -1
PARTITION_BITS = 32


class RowColumns(NamedTuple):
    """Columns of an Arrow batch from which a Spark task makes records."""

    values: pa.BinaryArray
    keys: pa.BinaryArray | None
    headers: pa.ListArray | None
    chosen_among: Numbers
    """For each row, the number of topic partitions from which its partition was chosen, or 0 if the
    row names its partition."""

    def take(self, rows: Numbers) -> "RowColumns":
        """Return the rows of the batch with these indexes, in this order."""
        return RowColumns(
            self.values.take(rows),
            None if self.keys is None else self.keys.take(rows),
            None if self.headers is None else self.headers.take(rows),
            self.chosen_among[rows],
        )

    def slice(self, start: int, count: int) -> "RowColumns":
        """Return `count` consecutive rows of the batch from row `start` on."""
        return RowColumns(
            self.values.slice(start, count),
            None if self.keys is None else self.keys.slice(start, count),
            None if self.headers is None else self.headers.slice(start, count),
            self.chosen_among[start : start + count],
        )


class RowSender:
    """Converter of a Spark task's rows to records, which it passes to a producer."""

    def __init__(self, producer: Producer, target: SinkTarget, stamps: Stamps) -> None:
        self._producer = producer
        self._target = target
        self._partitioner = Partitioner(target.producer_config().partitioner)
        self._stamps = stamps
        self.sent_count = 0
        self._counts: dict[str, int] = {}
        """Partition count of each topic when its first row was sent. All rows of this task are
        distributed by the same count. Partitions that are added to a topic later are used by later
        Spark tasks."""
        self.first_topic: str | None = None
        """Topic of the first row that was sent, or None while no row was sent."""

    async def send(self, batch: pa.RecordBatch) -> None:
        """Pass all rows of an Arrow batch to the producer as records."""
        if not batch.num_rows:
            return
        places = self._target.columns
        keys = None if places.key is None else as_bytes(batch[places.key])
        topics, topic_of = _topics(batch, self._target)
        self.first_topic = self.first_topic or topics[topic_of[0]]
        partition, chosen_among = await self._partitions(batch, keys, topics, topic_of)
        rows = RowColumns(
            as_bytes(batch[places.value]),
            keys,
            None if places.headers is None else batch[places.headers],
            chosen_among,
        )
        # The mask prevents an invalid partition from being taken for a partition of another topic.
        place = topic_of << PARTITION_BITS | partition & (1 << PARTITION_BITS) - 1
        order = np.argsort(place, kind="stable")
        begins = np.flatnonzero(np.diff(place[order], prepend=-1)).tolist()
        if len(begins) > 1:
            rows = rows.take(order)
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
            first = order[begin]
            await self._send_run(
                topics[topic_of[first]], int(partition[first]), rows.slice(begin, end - begin)
            )
        self.sent_count += batch.num_rows

    async def _send_run(self, topic: str, partition: int, rows: RowColumns) -> None:
        own = None if rows.headers is None else _headers(rows.headers)
        if self._target.options.provenance:
            headers = self._stamped(topic, partition, rows, own)
        else:
            headers = plain_headers(own)
        run = ColumnRun(rows.keys, rows.values, headers)
        await self._producer.send_run(topic, run, partition=partition)

    def _stamped(
        self, topic: str, partition: int, rows: RowColumns, own: Sequence[Headers] | None
    ) -> HeaderColumns:
        count = len(rows.values)
        contents: Iterator[StampedRow] = zip(
            [None] * count if rows.keys is None else _contents(rows.keys),
            _contents(rows.values),
            [()] * count if own is None else own,
            rows.chosen_among.tolist(),
            strict=True,
        )
        first, checks = self._stamps.number(topic, partition, contents)
        return stamped_headers(own, self._stamps, first, checks)

    async def _partitions(
        self,
        batch: pa.RecordBatch,
        keys: pa.BinaryArray | None,
        topics: Sequence[str],
        topic_of: Numbers,
    ) -> tuple[Numbers, Numbers]:
        """Return the topic partition of each row, and the number of partitions from which it was
        chosen."""
        count, place = batch.num_rows, self._target.columns.partition
        partition = np.full(count, NO_PARTITION, dtype=np.int64)
        is_open = np.ones(count, dtype=np.bool_)
        if place is not None:
            partition = np.asarray(pc.fill_null(batch[place], NO_PARTITION), dtype=np.int64)
            is_open = batch[place].is_null().to_numpy(zero_copy_only=False)
        chosen_among = np.zeros(count, dtype=np.int64)
        if not is_open.any():
            return partition, chosen_among
        partition = partition.copy()
        for number, topic in enumerate(topics):
            rows = np.flatnonzero(is_open & (topic_of == number))
            if len(rows):
                among = self._counts.get(topic) or await self._count(topic)
                chosen_among[rows] = among
                partition[rows] = self._hashed(keys, rows, among)
                turns = rows[partition[rows] == NO_PARTITION]
                partition[turns] = self._stamps.next_turns(topic, len(turns), among)
        return partition, chosen_among

    def _hashed(self, keys: pa.BinaryArray | None, rows: Numbers, among: int) -> Numbers:
        """Return the topic partition for each row by the hash of its key. The result is
        NO_PARTITION for rows whose partition is not determined by a key. `among` is the number of
        partitions."""
        none = np.full(len(rows), NO_PARTITION, dtype=np.int64)
        if keys is None:
            return none
        some = keys.take(rows)
        if self._partitioner is Partitioner.MURMUR2_RANDOM:
            is_there = some.is_valid().to_numpy(zero_copy_only=False)
            return np.where(is_there, key_hashes(some).astype(np.int64) % among, none)
        partition_of = self._partitioner.partition_of
        found = [partition_of(key, among) for key in some.to_pylist()]
        return np.array([NO_PARTITION if one is None else one for one in found], dtype=np.int64)

    async def _count(self, topic: str) -> int:
        count = len(await self._producer.partitions_of(topic))
        self._counts[topic] = count
        return count


def _topics(batch: pa.RecordBatch, target: SinkTarget) -> tuple[list[str], Numbers]:
    """Return the distinct topics of the rows of an Arrow batch, and for each row the index of its
    topic."""
    if target.options.topic is not None:
        return [target.options.topic], np.zeros(batch.num_rows, dtype=np.int64)
    assert target.columns.topic is not None
    column = batch[target.columns.topic]
    if column.null_count:
        raise RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "a row has no topic: its column topic is null, and the option is not set",
        )
    coded = column.dictionary_encode()
    return coded.dictionary.to_pylist(), np.asarray(coded.indices, dtype=np.int64)


def _contents(column: pa.BinaryArray) -> list[memoryview | None]:
    """Return a view of the bytes of each row in an Arrow column, without copying them. Null rows
    are None."""
    _valid, offset_bytes, data = column.buffers()
    count = len(column)
    first = column.offset
    ends = np.frombuffer(offset_bytes, dtype=np.int32)[first : first + count + 1].tolist()
    view = memoryview(b"" if data is None else data)
    found: list[memoryview | None] = [view[begin:end] for begin, end in pairwise(ends)]
    if column.null_count:
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            found[row] = None
    return found


def _headers(column: pa.ListArray) -> list[Headers]:
    rows: list[Any] = column.to_pylist()
    return [tuple((one["key"], one["value"]) for one in row) if row else () for row in rows]
