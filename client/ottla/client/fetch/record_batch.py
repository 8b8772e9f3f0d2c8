"""Records in the form in which a consumer returns them: single records, and batches with lazily
decoded columns.

Pure. A batch is a view of rows in a `RecordColumns`, whose columns are decoded when they are first
used. The Python object of a record is created only when the application requests the record.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, overload

from ottla.model.ids import Epoch, Offset, TopicPartition
from ottla.wire.batch import TimestampType
from ottla.wire.records import RecordHeaders


class ConsumerRecord(NamedTuple):
    """One record with its topic, partition and offset."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    offset: Offset
    """Offset of the record."""
    timestamp_ms: int
    """Timestamp of the record, in ms since 1970."""
    key: bytes | None
    """Key of the record, or None."""
    value: bytes | None
    """Value of the record.  None for a tombstone."""
    headers: RecordHeaders
    """Headers of the record: pairs of name and bytes."""
    leader_epoch: Epoch
    """Leader epoch under which the record was written."""
    timestamp_type: TimestampType
    """Origin of the timestamp: the producer (CreateTime) or the broker (LogAppendTime)."""


class RecordOrigin(NamedTuple):
    """Properties that all records of one batch have in common, such as topic, partition and leader
    epoch."""

    at: TopicPartition
    leader_epoch: Epoch
    timestamp_type: TimestampType


class RecordColumns(Protocol):
    """Interface of the records of one partition as rows, in order of their offsets. A record may be
    decoded only when it is read. All rows have the same RecordOrigin. Ranges of row numbers are
    half-open."""

    origin: RecordOrigin
    row_count: int

    def end_within(self, start: int, size_bytes: int) -> int:
        """Return the end of the longest range of rows that starts at `start` and has at most
        `size_bytes` encoded bytes. The range has at least one row."""

    def offset_of(self, row: int) -> Offset:
        """Return the offset of one row."""

    def size_bytes(self, start: int, end: int) -> int:
        """Return the encoded size of the rows [start, end) in bytes, uncompressed."""

    def offsets(self, start: int, end: int) -> Sequence[int]:
        """Return the offset of each row."""

    def timestamps_ms(self, start: int, end: int) -> Sequence[int]:
        """Return the timestamp of each row, in ms since 1970."""

    def keys(self, start: int, end: int) -> list[bytes | None]:
        """Return the key of each row; None for a record without a key."""

    def values(self, start: int, end: int) -> list[bytes | None]:
        """Return the value of each row; None for a tombstone."""

    def value_views(self, start: int, end: int) -> list[memoryview | None]:
        """Return the value of each row as a memoryview, without copying it; None for a
        tombstone."""

    def headers(self, start: int, end: int) -> list[RecordHeaders]:
        """Return the headers of each row."""

    def records(self, start: int, end: int) -> list[ConsumerRecord]:
        """Return the rows [start, end) as ConsumerRecord objects."""


class RecordBatch(Sequence[ConsumerRecord]):
    """Records of one partition in order of their offsets, readable as columns or one by one.

    A column is decoded when it is first used, and then stored. Iterating over a batch creates
    records. A slice of a batch is another batch. A batch may keep more memory in use than its own
    records need, because several batches share the bytes of records that were decoded together.
    """

    __slots__ = (
        "_columns",
        "_end",
        "_headers",
        "_keys",
        "_offsets",
        "_start",
        "_timestamps_ms",
        "_values",
    )

    def __init__(self, columns: RecordColumns, start: int, end: int) -> None:
        """Create a view of the rows [start, end), which must not be empty. Applications get batches
        from `Consumer.poll_batches`."""
        assert 0 <= start < end <= columns.row_count
        self._columns = columns
        self._start = start
        self._end = end
        self._offsets: Sequence[int] | None = None
        self._timestamps_ms: Sequence[int] | None = None
        self._keys: list[bytes | None] | None = None
        self._values: list[bytes | None] | None = None
        self._headers: list[RecordHeaders] | None = None

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._columns.origin.at.topic

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self._columns.origin.at.partition

    @property
    def at(self) -> TopicPartition:
        """Topic and partition, as `commit` and `seek` expect them."""
        return self._columns.origin.at

    @property
    def leader_epoch(self) -> Epoch:
        """Leader epoch under which the records were written."""
        return self._columns.origin.leader_epoch

    @property
    def timestamp_type(self) -> TimestampType:
        """Origin of the timestamps: the producer (CreateTime) or the broker (LogAppendTime)."""
        return self._columns.origin.timestamp_type

    @property
    def base_offset(self) -> Offset:
        """Offset of the first record."""
        return self._columns.offset_of(self._start)

    @property
    def end_offset(self) -> Offset:
        """Offset after the last record: the offset to commit once all records are processed."""
        return Offset(self._columns.offset_of(self._end - 1) + 1)

    @property
    def size_bytes(self) -> int:
        """Size of the encoded records in bytes, before compression."""
        return self._columns.size_bytes(self._start, self._end)

    @property
    def offsets(self) -> Sequence[int]:
        """Offset of each record.  The sequence is a `range` if the offsets have no gaps."""
        if self._offsets is None:
            self._offsets = self._columns.offsets(self._start, self._end)
        return self._offsets

    @property
    def timestamps_ms(self) -> Sequence[int]:
        """Timestamp of each record, in ms since 1970."""
        if self._timestamps_ms is None:
            self._timestamps_ms = self._columns.timestamps_ms(self._start, self._end)
        return self._timestamps_ms

    @property
    def keys(self) -> list[bytes | None]:
        """Key of each record; None for a record without a key."""
        if self._keys is None:
            self._keys = self._columns.keys(self._start, self._end)
        return self._keys

    @property
    def values(self) -> list[bytes | None]:
        """Value of each record; None for a tombstone."""
        if self._values is None:
            self._values = self._columns.values(self._start, self._end)
        return self._values

    @property
    def value_views(self) -> list[memoryview | None]:
        """Value of each record as a memoryview, without a copy; None for a tombstone. For large
        values, this is cheaper than `values`."""
        return self._columns.value_views(self._start, self._end)

    @property
    def headers(self) -> list[RecordHeaders]:
        """Headers of each record: pairs of name and bytes."""
        if self._headers is None:
            self._headers = self._columns.headers(self._start, self._end)
        return self._headers

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self._columns.records(self._start, self._end))

    @overload
    def __getitem__(self, place: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, place: slice) -> "RecordBatch": ...
    def __getitem__(self, place: int | slice) -> "ConsumerRecord | RecordBatch":
        """Return one record, or a slice as another batch. Raises IndexError if the batch has no
        record at the index."""
        if isinstance(place, slice):
            start, end, step = place.indices(len(self))
            if step != 1 or start >= end:
                raise IndexError(f"a slice of a batch is of neighbours, at least one: {place}")
            return RecordBatch(self._columns, self._start + start, self._start + end)
        row = place + len(self) if place < 0 else place
        if not 0 <= row < len(self):
            raise IndexError(f"there is no record {place} of {len(self)}")
        at = self._start + row
        return self._columns.records(at, at + 1)[0]

    def _part(self, start: int, count: int, size_bytes: int | None) -> "RecordBatch":
        """Return a batch of up to `count` records from index `start`, with a size of about
        `size_bytes`. The batch has at least one record."""
        row = self._start + start
        end = min(row + count, self._end)
        if size_bytes is not None:
            end = min(end, self._columns.end_within(row, size_bytes))
        return RecordBatch(self._columns, row, end)

    def __repr__(self) -> str:
        return (
            f"<RecordBatch {self.topic}-{self.partition}: {len(self)} records from offset "
            f"{self.base_offset}>"
        )


class ScannedColumns:
    """Columns of records that were decoded one by one, without numpy."""

    __slots__ = ("_records", "origin", "row_count")

    def __init__(self, origin: RecordOrigin, records: list[ConsumerRecord]) -> None:
        self.origin = origin
        self.row_count = len(records)
        self._records = records

    def end_within(self, start: int, size_bytes: int) -> int:
        """Return the end of the longest range of rows that starts at `start` and has at most
        `size_bytes` bytes. The range has at least one row."""
        end = start + 1
        left = size_bytes - _size_of(self._records[start])
        while end < self.row_count and (left := left - _size_of(self._records[end])) >= 0:
            end += 1
        return end

    def offset_of(self, row: int) -> Offset:
        """Return the offset of one row."""
        return self._records[row].offset

    def size_bytes(self, start: int, end: int) -> int:
        """Return the size of the keys, values and headers in the rows [start, end), in bytes."""
        return sum(map(_size_of, self._records[start:end]))

    def offsets(self, start: int, end: int) -> Sequence[int]:
        """Return the offset of each row."""
        first, last = self._records[start].offset, self._records[end - 1].offset
        if last - first == end - 1 - start:
            return range(first, last + 1)
        return [record.offset for record in self._records[start:end]]

    def timestamps_ms(self, start: int, end: int) -> Sequence[int]:
        """Return the timestamp of each row, in ms since 1970."""
        return [record.timestamp_ms for record in self._records[start:end]]

    def keys(self, start: int, end: int) -> list[bytes | None]:
        """Return the key of each row; None for a record without a key."""
        return [record.key for record in self._records[start:end]]

    def values(self, start: int, end: int) -> list[bytes | None]:
        """Return the value of each row; None for a tombstone."""
        return [record.value for record in self._records[start:end]]

    def value_views(self, start: int, end: int) -> list[memoryview | None]:
        """Return the value of each row as a memoryview, without copying it; None for a
        tombstone."""
        values = self.values(start, end)
        return [None if value is None else memoryview(value) for value in values]

    def headers(self, start: int, end: int) -> list[RecordHeaders]:
        """Return the headers of each row."""
        return [record.headers for record in self._records[start:end]]

    def records(self, start: int, end: int) -> list[ConsumerRecord]:
        """Return the rows [start, end) as ConsumerRecord objects."""
        return self._records[start:end]


def _size_of(record: ConsumerRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += len(name) + len(content or b"")
    return size
