"""Decodes Kafka's record batches to Arrow record batches, in exactly Spark's schema.  Pure.

Keys and values are copied once, from the fetched bytes into Arrow's buffers; no Python object is
created for a record.  If `record_fields` cannot validate records, `ottla.wire.records` reads them
one by one, and accepts or refuses them with its own error messages.  Invariant: SameRecords (the
output equals that of `wire.records.scan`).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ottla.model.errors import CorruptDataError
from ottla.model.ids import TopicPartition
from ottla.model.limits import INT64_MAX, MIB
from ottla.pipeline.read.arrow_schema import HEADERS, arrow_schema
from ottla.pipeline.read.fetched_batches import corrupt_at
from ottla.wire.batch import Buffer
from ottla.wire.record_fields import Fields, HeaderFields, read_fields
from ottla.wire.record_layouts import Ints
from ottla.wire.records import Body, scan_body

ROWS_MAX = 20_000
"""Maximum number of rows in one Arrow batch. With more rows, they no longer fit into the
processor's cache until Spark reads them. With fewer rows, the cost per batch dominates."""
BYTES_MAX = 4 * MIB
"""Maximum total size in bytes of the record batches that are decoded together. A single batch may
be larger."""
US_PER_MS = 1_000
TIMESTAMP_MS_MAX = INT64_MAX // US_PER_MS
"""Maximum timestamp of a record in ms since 1970. Spark stores timestamps as microseconds in 64
bits."""


class ArrowDecoder:
    """Decoder of one partition's records into the requested Arrow columns."""

    def __init__(self, at: TopicPartition, names: tuple[str, ...]) -> None:
        self._at = at
        self._names = names
        self._schema = arrow_schema(names)
        self._first = 0
        self._end = 0

    def decode(self, bodies: Iterable[Body], first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records with offsets in [first, end) as non-empty Arrow batches of at most
        `ROWS_MAX` rows.

        Raises CorruptDataError at corrupt bytes, after it has yielded the records before them.
        """
        self._first, self._end = first, end
        for some in _together(bodies):
            yield from self._decode_together(some)

    def _decode_together(self, bodies: Sequence[Body]) -> Iterator[pa.RecordBatch]:
        data, placed = _in_one_buffer(bodies)
        fields = read_fields(data, placed)
        made = None if fields is None else self._from_fields(data, fields)
        if made is not None:
            yield from _sliced(made)
        elif len(bodies) > 1:
            for body in bodies:
                yield from self._decode_together([body])
        else:
            yield from _sliced(self._one_by_one(bodies[0]))

    def _from_fields(self, data: Buffer, fields: Fields) -> pa.RecordBatch | None:
        """Return the Arrow rows for the located fields of records, or None if the name of a header
        is not UTF-8."""
        headers = None
        if fields.headers is not None:
            headers = _header_column(data, fields.headers)
            if headers is None:
                return None
        rows = None
        if (
            fields.offsets[0] < self._first
            or fields.offsets[-1] >= self._end
            or not _is_rising(fields.offsets)
        ):
            rows = np.flatnonzero((fields.offsets >= self._first) & (fields.offsets < self._end))
        columns = [self._column(name, data, fields, headers, rows) for name in self._names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(
        self,
        name: str,
        data: Buffer,
        fields: Fields,
        headers: pa.Array | None,
        rows: Ints | None,
    ) -> pa.Array:
        count = len(fields.offsets) if rows is None else len(rows)
        if name == "key":
            return _binary(data, fields.key_at, fields.key_bytes, rows)
        if name == "value":
            return _binary(data, fields.value_at, fields.value_bytes, rows)
        if name == "topic":
            return _topic_column(self._at.topic, count)
        if name == "partition":
            return pa.array(np.full(count, self._at.partition, dtype=np.int32))
        if name == "offset":
            return pa.array(_of(fields.offsets, rows))
        if name == "timestamp":
            return _timestamp_column(_of(fields.offsets, rows), _of(fields.timestamps_ms, rows))
        if name == "timestampType":
            return pa.array(_of(fields.timestamp_types, rows))
        assert name == HEADERS
        if headers is None:
            return pa.nulls(count, self._schema.field(HEADERS).type)
        return headers if rows is None else headers.take(pa.array(rows))

    def _one_by_one(self, body: Body) -> pa.RecordBatch:
        """Return the Arrow rows for a record batch that `record_fields` cannot validate."""
        header, unpacked = body.header, bytes(memoryview(body.data)[body.start : body.end])
        try:
            records = [
                record
                for record in scan_body(unpacked, header)
                if self._first <= record.offset < self._end
            ]
        except CorruptDataError as error:
            raise corrupt_at(header.base_offset, error) from error
        columns: dict[str, Sequence[Any]] = {
            "key": [record.key for record in records],
            "value": [record.value for record in records],
            "topic": [self._at.topic] * len(records),
            "partition": [self._at.partition] * len(records),
            "offset": [record.offset for record in records],
            "timestamp": [_microseconds(one.offset, one.timestamp_ms) for one in records],
            "timestampType": [int(header.timestamp_type)] * len(records),
            HEADERS: [
                [{"key": name, "value": content} for name, content in record.headers] or None
                for record in records
            ],
        }
        return pa.RecordBatch.from_arrays(
            [pa.array(columns[one.name], type=one.type) for one in self._schema],
            schema=self._schema,
        )


def _together(bodies: Iterable[Body]) -> Iterator[list[Body]]:
    """Yield groups of record batches that are decoded together: a few small batches, or one large
    batch."""
    some: list[Body] = []
    count = size = 0
    for body in bodies:
        if not body.header.record_count and not body.size_bytes:
            continue  # Compaction keeps the header of a batch without records.
        more, larger = count + body.header.record_count, size + body.size_bytes
        if some and (more > ROWS_MAX or larger > BYTES_MAX):
            yield some
            some, more, larger = [], body.header.record_count, body.size_bytes
        some.append(body)
        count, size = more, larger
    if some:
        yield some


def _in_one_buffer(bodies: Sequence[Body]) -> tuple[Buffer, Sequence[Body]]:
    """Return one buffer that contains the bytes of all records, and the records' positions in it.

    The records are copied only if they are in several buffers.
    """
    data = bodies[0].data
    if all(body.data is data for body in bodies):
        return data, bodies
    joined = b"".join(memoryview(body.data)[body.start : body.end] for body in bodies)
    placed: list[Body] = []
    at = 0
    for body in bodies:
        placed.append(Body(body.header, joined, at, at + body.size_bytes))
        at += body.size_bytes
    return joined, placed


def _sliced(made: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, made.num_rows, ROWS_MAX):
        yield made.slice(start, ROWS_MAX) if made.num_rows > ROWS_MAX else made


def _is_rising(offsets: Ints) -> bool:
    return bool((offsets[1:] > offsets[:-1]).all())


def _of(column: NDArray[Any], rows: Ints | None) -> NDArray[Any]:
    return column if rows is None else column[rows]


def _binary(data: Buffer, at: Ints, sizes: Ints, rows: Ints | None = None) -> pa.BinaryArray:
    """Return the bytes at the given positions of a buffer as one Arrow column. A size of -1 means
    null."""
    at, sizes = _of(at, rows), _of(sizes, rows)
    count = len(at)
    if not count or sizes.max() < 0:
        return pa.nulls(count, pa.binary())
    # The array alternates between values and the bytes between them, over the whole buffer.
    edges = np.empty(2 * count, dtype=np.int32)
    edges[0::2] = at
    edges[1::2] = at + sizes
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    places = pa.BinaryArray.from_buffers(pa.binary(), 2 * count - 1, buffers)
    is_null = sizes < 0
    indices = np.arange(0, 2 * count, 2, dtype=np.int32)
    if is_null.any():
        return places.take(pa.array(indices, mask=is_null))
    return places.take(pa.array(indices))


def _header_column(data: Buffer, headers: HeaderFields) -> pa.Array | None:
    """Return the headers of each record as an Arrow column, with null for records without headers.
    Returns None if the name of a header is not UTF-8."""
    try:
        keys = _binary(data, headers.key_at, headers.key_bytes).cast(pa.string())
    except pa.ArrowInvalid:
        return None
    values = _binary(data, headers.value_at, headers.value_bytes)
    pairs = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
    has_none = headers.starts[1:] == headers.starts[:-1]
    starts = pa.array(headers.starts.astype(np.int32))
    if not has_none.any():
        return pa.ListArray.from_arrays(starts, pairs, type=arrow_schema((HEADERS,))[0].type)
    return pa.ListArray.from_arrays(
        starts, pairs, type=arrow_schema((HEADERS,))[0].type, mask=pa.array(has_none)
    )


def _timestamp_column(offsets: Ints, timestamps_ms: Ints) -> pa.Array:
    if len(timestamps_ms):
        for row in (timestamps_ms.argmin(), timestamps_ms.argmax()):
            _microseconds(int(offsets[row]), int(timestamps_ms[row]))
    return pa.array(timestamps_ms * US_PER_MS).view(arrow_schema(("timestamp",))[0].type)


def _microseconds(offset: int, timestamp_ms: int) -> int:
    if abs(timestamp_ms) > TIMESTAMP_MS_MAX:
        raise CorruptDataError(
            f"record at offset {offset}: its timestamp of {timestamp_ms} ms is beyond Spark's times"
        )
    return timestamp_ms * US_PER_MS


@lru_cache(maxsize=64)
def _topic_rows(topic: str) -> pa.StringArray:
    return pa.array([topic] * ROWS_MAX, type=pa.string())


def _topic_column(topic: str, count: int) -> pa.StringArray:
    if count <= ROWS_MAX:
        return _topic_rows(topic).slice(0, count)
    return pa.array([topic] * count, type=pa.string())
