"""Records that are sent by one call of `send_many`: bulk encoding, and delivery reports by batch.

All records of a call have the same timestamp. Records without keys are encoded in bulk, without
Python code that runs for each record.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple, TypeAlias

import trio

from ottla.client.produce.accumulator import RECORD_OVERHEAD_BYTES
from ottla.client.produce.partition_queue import NotDeliveredError, ProducerBatch
from ottla.client.produce.record_arguments import bytes_or_none
from ottla.client.produce.record_encoding import encode_each, encode_plain
from ottla.client.produce.record_run import EncodedRecords
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.wire.batch_builder import varint

CHUNK_COUNT_MAX = 1_024
"""Maximum number of records that are checked and partitioned before other tasks run. With a smaller
number, other tasks run more often. A larger number delays other tasks."""

KeyAndValue: TypeAlias = tuple[bytes | None, bytes | None]
ManyRecords: TypeAlias = Iterable[bytes | KeyAndValue | None]


class Chunk(NamedTuple):
    """Records of one `send_many` call that were checked together. `keys` is None if no record has a
    key."""

    first: int
    """Index of the chunk's first record within the `send_many` call."""
    keys: list[bytes | None] | None
    values: list[bytes | None]


def chunks(records: ManyRecords, chunk_bytes: int, record_bytes_max: int) -> Iterator[Chunk]:
    """Check records and yield them in chunks.  If `records` is an iterator, each chunk has about
    `chunk_bytes` bytes.

    Raises TypeError for a record that is not bytes, None or a (key, value) pair, and
    RefusedError(MESSAGE_TOO_LARGE) for a record that is too large.  Both errors contain the index
    of the record.
    """
    if isinstance(records, bytes | bytearray | memoryview | str):
        raise TypeError("records is one value; it must be many: a list of them")
    if isinstance(records, list | tuple):
        for first in range(0, len(records), CHUNK_COUNT_MAX):
            yield _checked(first, records[first : first + CHUNK_COUNT_MAX], record_bytes_max)
        return
    first, source = 0, iter(records)
    while some := _portion(source, chunk_bytes):
        yield _checked(first, some, record_bytes_max)
        first += len(some)


def _portion(source: Iterator[Any], chunk_bytes: int) -> list[Any]:
    some: list[Any] = []
    size_bytes = 0
    for record in islice(source, CHUNK_COUNT_MAX):
        some.append(record)
        parts = record if isinstance(record, tuple) else (record,)
        size_bytes += sum(len(part) for part in parts if isinstance(part, bytes))
        if size_bytes >= chunk_bytes:
            break
    return some


def _checked(first: int, some: Sequence[Any], record_bytes_max: int) -> Chunk:
    if set(map(type, some)) == {bytes}:
        chunk = Chunk(first, None, list(some))
        if max(map(len, some)) + RECORD_OVERHEAD_BYTES <= record_bytes_max:
            return chunk
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for index, record in enumerate(some, first):
        key, value = None, record
        if isinstance(record, tuple | list):
            if len(record) != 2:
                raise TypeError(
                    f"records[{index}] has {len(record)} parts; it must be (key, value)"
                )
            key, value = record
        key = bytes_or_none(f"the key of records[{index}]", key)
        value = bytes_or_none(f"records[{index}]", value)
        size_bytes = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        if size_bytes > record_bytes_max:
            raise RefusedError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"records[{index}] takes {size_bytes} bytes, max.request.size is "
                f"{record_bytes_max}",
            )
        keys.append(key)
        values.append(value)
    return Chunk(first, keys if any(key is not None for key in keys) else None, values)


class ManyRecordsRun:
    """Records of one `send_many` call for one partition. They are moved into batches step by step.
    Implements `RecordRun`."""

    def __init__(self, keys: Sequence[bytes | None] | None, values: Sequence[bytes | None]) -> None:
        self._keys = keys
        self._values = values
        self._sizes = [len(value or b"") for value in values]
        if keys is not None:
            self._sizes = [
                size + len(key or b"") for size, key in zip(self._sizes, keys, strict=True)
            ]
        self._largest = max(self._sizes)
        self._ends = list(accumulate(self._sizes, initial=0))
        """Total size of the records before each record, and of all records, in bytes."""
        self.taken_count = 0
        """Number of records that have already been moved into batches."""

    @property
    def next_bytes(self) -> int:
        """Maximum size of the next record, in bytes. 0 if no record is left."""
        if self.taken_count == len(self._sizes):
            return 0
        return self._sizes[self.taken_count] + RECORD_OVERHEAD_BYTES

    @property
    def largest_bytes(self) -> int:
        """Maximum size of any of the records, in bytes."""
        return self._largest + RECORD_OVERHEAD_BYTES

    def take(self, room_bytes: int, first_delta: int, timestamp_delta: int) -> EncodedRecords:
        """Encode and return as many records as fit into `room_bytes`, and at least one record."""
        first, left = self.taken_count, len(self._sizes) - self.taken_count
        stamp = varint(timestamp_delta)
        # Overhead of a record: attributes, number of headers, timestamp and offset; then the
        # lengths of the key, the value and the record itself.
        over = 2 + len(stamp) + len(varint(first_delta + left))
        over += 3 * len(varint(self._largest + RECORD_OVERHEAD_BYTES))
        before = self._ends[first]
        count = max(
            1,
            bisect_right(
                range(1, left + 1),
                room_bytes,
                key=lambda count: self._ends[first + count] - before + count * over,
            ),
        )
        self.taken_count += count
        keys, values = self._keys, self._values[first : first + count]
        if keys is None and (body := encode_plain(values, first_delta, stamp)) is not None:
            return EncodedRecords(body, count)
        some = [None] * count if keys is None else keys[first : first + count]
        return EncodedRecords(encode_each(some, values, first_delta, stamp), count)


class BatchMetadata(NamedTuple):
    """Partition, offsets and timestamp of the records of a `send_many` call that were delivered in
    one batch."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    offset: Offset
    """Offset of the first of these records. Each following record has the next offset. -1 if the
    offset is unknown."""
    timestamp_ms: int
    """Timestamp of the records, in ms since 1970, set by the producer or the broker."""
    positions: Sequence[int]
    """Indexes of the records within the `send_many` call, in order of their offsets."""


class SentPart(NamedTuple):
    """Records of one `send_many` call that were appended to one batch."""

    batch: ProducerBatch
    first: int
    """Index of the first of these records within the batch."""
    positions: Sequence[int]
    """Indexes of the records within the `send_many` call."""


class SentRecords:
    """Delivery reports of the records of one `send_many` call.

    Awaiting it returns a BatchMetadata for each batch when every record is delivered or has failed,
    or raises the first NotDeliveredError. `failures` contains the errors of single records.
    """

    __slots__ = ("_parts", "_timestamp_ms", "record_count")

    def __init__(self, timestamp_ms: int) -> None:
        self._parts: list[SentPart] = []
        self._timestamp_ms = timestamp_ms
        self.record_count = 0
        """Number of records that were passed to `send_many`."""

    def __await__(self) -> Generator[Any, Any, list[BatchMetadata]]:
        return self.wait().__await__()

    def _add(self, part: SentPart) -> None:
        """Add records that were appended to a batch."""
        self._parts.append(part)
        self.record_count += len(part.positions)

    @property
    def is_settled(self) -> bool:
        """True if every record was delivered or has failed permanently."""
        return all(part.batch.is_settled for part in self._leaves())

    @property
    def failures(self) -> dict[int, NotDeliveredError]:
        """Errors of the records that have failed so far, by the index of the record in the call."""
        found: dict[int, NotDeliveredError] = {}
        for batch, first, positions in self._leaves():
            if batch.failure is None:
                continue
            for place, position in enumerate(positions, first):
                failure = batch.failure_of(place)
                if failure is not None:
                    found[position] = failure
        return dict(sorted(found.items()))

    def result(self) -> list[BatchMetadata]:
        """Return a BatchMetadata for each batch that contains records of the call. The caller must
        first wait until `is_settled` is True.

        Raises the first NotDeliveredError if records were not delivered.
        """
        failures = self.failures
        if failures:
            for part in self._leaves():
                part.batch.is_watched = True
            raise next(iter(failures.values()))
        found = []
        for batch, first, positions in self._leaves():
            assert batch.is_settled
            offset = batch.base_offset + first if batch.base_offset >= 0 else -1
            append_ms = batch.log_append_time_ms
            stamp_ms = append_ms if append_ms >= 0 else self._timestamp_ms
            found.append(BatchMetadata(*batch.partition, Offset(offset), stamp_ms, positions))
        return found

    async def wait(self) -> list[BatchMetadata]:
        """Wait until every record is delivered or has failed, and return a BatchMetadata for each
        batch.

        Raises the first NotDeliveredError if records were not delivered.
        """
        await trio.lowlevel.checkpoint()
        for part in self._leaves():
            part.batch.is_watched = True
        while open_batches := [part.batch for part in self._leaves() if not part.batch.is_settled]:
            event = trio.Event()
            open_batches[0].on_settled.append(event.set)
            await event.wait()
        return self.result()

    def _leaves(self) -> list[SentPart]:
        """Return the batches that contain the records at present. The batches change if a batch is
        too large and therefore split."""
        if any(part.batch.parts is not None for part in self._parts):
            self._parts = [leaf for part in self._parts for leaf in _leaves_of(part)]
        return self._parts


def _leaves_of(part: SentPart) -> Iterator[SentPart]:
    batch, first, positions = part
    while positions:
        leaf, place = batch.leaf_of(first)
        count = min(len(positions), leaf.record_count - place)
        yield SentPart(leaf, place, positions[:count])
        first, positions = first + count, positions[count:]
