"""Encoder of Arrow columns as record batches, which processes whole columns at a time. Pure.

The variable-length parts of a record are columns of bytes: varints made by numpy, keys and values,
headers. One join by Arrow assembles all records, and the buffer of the joined column is the body of
the batch. Invariant: AsThePlainEncoder (the output equals the output of `BatchBuilder.append` and
`Stamps.stamp`, byte for byte; checked by a property test).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.produce.accumulator import RECORD_OVERHEAD_BYTES
from ottla.client.produce.record_run import EncodedRecords
from ottla.pipeline.write.provenance import CHECK_BEGIN, NAMES, Stamps
from ottla.wire.batch_builder import NO_ATTRIBUTES, NO_HEADERS, Headers, encode_header, varint

Numbers = npt.NDArray[np.int64]

SHORT_DELTA_COUNT, LONG_DELTA_COUNT = 1 << 6, 1 << 13
"""Maximum numbers of records in a batch for which all offset deltas take one byte, and at most two
bytes."""
AHEAD_BYTES = 1 << 20
"""Number of bytes of records that are encoded ahead. With fewer bytes, each batch needs more calls;
with more, more memory is used."""
VARINT_BYTES_MAX = 10
HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
NIBBLES = np.arange(28, -1, -4, dtype=np.uint32)
BYTES = pa.binary()


def as_bytes(column: pa.Array) -> pa.BinaryArray:
    """Return an Arrow column of text or bytes as a column of bytes."""
    return column.cast(BYTES)


def varints(numbers: Numbers) -> pa.BinaryArray:
    """Return the zigzag varints of numbers, as an Arrow column of bytes."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    count = len(zigzag)
    if not count or int(zigzag.max()) < 1 << 7:
        return _column(zigzag.astype(np.uint8), np.arange(count + 1))
    widths = _widths(zigzag)
    width = int(widths.max())
    shifts = np.arange(0, 7 * width, 7, dtype=np.uint64)
    digits = (zigzag[:, None] >> shifts & np.uint64(0x7F)).astype(np.uint8)
    places = np.arange(width)
    digits |= np.where(places < widths[:, None] - 1, 0x80, 0).astype(np.uint8)
    return _column(digits[places < widths[:, None]], np.concatenate(([0], np.cumsum(widths))))


def varint_widths(numbers: Numbers) -> Numbers:
    """Return the size in bytes of each non-negative number's varint."""
    return _widths((numbers << 1).view(np.uint64))


def _widths(zigzag: npt.NDArray[np.uint64]) -> Numbers:
    widths = np.ones(len(zigzag), dtype=np.int64)
    largest = int(zigzag.max()) if len(zigzag) else 0
    for bits in range(7, 7 * VARINT_BYTES_MAX, 7):
        if largest < 1 << bits:
            break
        widths += zigzag >= np.uint64(1 << bits)
    return widths


def _column(data: npt.NDArray[np.uint8], offsets: Numbers) -> pa.BinaryArray:
    """Return an Arrow column of bytes whose rows are adjacent in `data` and start at `offsets`."""
    buffers = [
        None,
        pa.py_buffer(offsets.astype(np.int32)),
        pa.py_buffer(np.ascontiguousarray(data)),
    ]
    return pa.Array.from_buffers(BYTES, len(offsets) - 1, buffers)


def _lengths(column: pa.BinaryArray) -> Numbers:
    """Return the length in bytes of each row of an Arrow column. It is -1 for null, as in a
    record."""
    return np.asarray(pc.fill_null(pc.binary_length(column), -1), dtype=np.int64)


@dataclass(frozen=True)
class HeaderColumns:
    """Encoded headers of records, as parts that are joined. Each part is an Arrow column or a
    constant."""

    parts: Sequence[Any]
    lengths: Numbers | int

    def slice(self, start: int, count: int) -> Sequence[Any]:
        """Return the parts of the encoded headers of `count` records, from record `start` on."""
        return [
            part.slice(start, count) if isinstance(part, pa.Array) else part for part in self.parts
        ]


def plain_headers(own: Sequence[Headers] | None) -> HeaderColumns:
    """Return the encoded headers of the rows in an Arrow batch. If there is no column of headers,
    return a constant that encodes a header count of zero."""
    if own is None:
        return HeaderColumns([pa.scalar(NO_HEADERS, BYTES)], len(NO_HEADERS))
    column = _own(own, 0)
    return HeaderColumns([column], _lengths(column))


def stamped_headers(
    own: Sequence[Headers] | None, stamps: Stamps, first: int, checks: Sequence[int]
) -> HeaderColumns:
    """Return the encoded headers of rows, each row's own headers followed by the headers of
    `stamps`, which identify the task that wrote the record. `first` is the number of the first
    record, and `checks` contains the value of the header CHECK for each record."""
    count = len(checks)
    number = pc.cast(pa.array(np.arange(first, first + count)), pa.string()).cast(BYTES)
    digits = _lengths(number)
    nibbles = np.asarray(checks, dtype=np.uint32)[:, None] >> NIBBLES & np.uint32(0xF)
    check = _column(HEX[nibbles].reshape(-1), np.arange(count + 1) * len(NIBBLES))
    parts: list[Any] = [pa.scalar(varint(len(NAMES)) + stamps.fixed, BYTES)]
    lengths = digits + len(NIBBLES)
    if own is not None:
        column = _own(own, len(NAMES))
        parts = [column, pa.scalar(stamps.fixed, BYTES)]
        lengths = lengths + _lengths(column)
    parts += [varints(digits), number, pa.scalar(CHECK_BEGIN, BYTES), check]
    same = sum(len(part.as_py()) for part in parts if isinstance(part, pa.Scalar))
    return HeaderColumns(parts, lengths + 1 + same)


def _own(own: Sequence[Headers], more_count: int) -> pa.BinaryArray:
    """Encode the rows' own headers, preceded by the total header count of each record. For each
    record, `more_count` further headers are appended later; the header count includes them."""
    return pa.array(
        [
            b"".join((varint(len(row) + more_count), *(encode_header(*header) for header in row)))
            for row in own
        ],
        BYTES,
    )


@dataclass
class ColumnRun:
    """Records of one Arrow batch for one topic partition, as an implementation of `RecordRun`."""

    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    headers: HeaderColumns
    _at: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        none = np.full(1, -1, dtype=np.int64)
        key_lengths = none if self.keys is None else _lengths(self.keys)
        value_lengths = _lengths(self.values)
        content = key_lengths.clip(0) + value_lengths.clip(0) + self.headers.lengths
        self._bounds = content + RECORD_OVERHEAD_BYTES
        """Maximum size in bytes that each record of this run may have when it is encoded in a
        batch."""
        self._key_varints = varints(key_lengths)
        self._value_varints = varints(value_lengths)
        key_widths = varint_widths(key_lengths.clip(0))
        value_widths = varint_widths(value_lengths.clip(0))
        self._lengths = content + key_widths + value_widths + len(NO_ATTRIBUTES)
        """Length in bytes of each record of the run, without its timestamp delta and offset
        delta."""
        # The timestamp delta takes one byte, the offset delta one or two.
        self._short_ends = _ends(self._lengths + 2)
        self._long_ends = _ends(self._lengths + 3)
        self._ahead: deque[EncodedRecords] = deque()
        """Records that were encoded ahead for the next batches. They are used if these batches have
        as much space as planned."""
        self._planned_bytes = 0
        """Space in bytes of each batch for which records were encoded ahead."""

    @property
    def next_bytes(self) -> int:
        """Maximum size in bytes of the next record of the run, or 0 if no record is left."""
        return int(self._bounds[self._at]) if self._at < len(self.values) else 0

    @property
    def largest_bytes(self) -> int:
        """Maximum size in bytes of the largest record in this run."""
        return int(self._bounds.max(initial=0))

    def take(self, room_bytes: int, first_delta: int, timestamp_delta: int) -> EncodedRecords:
        """Encode and return the next records of the run that fit into `room_bytes`, but at least
        one record."""
        is_new_batch = first_delta == timestamp_delta == 0
        if not is_new_batch or room_bytes != self._planned_bytes:
            self._ahead.clear()
        if is_new_batch and not self._ahead:
            self._plan(room_bytes)
        if not self._ahead or len(self._ahead[0].body) > room_bytes:
            self._ahead.clear()
            self._ahead.append(self._take_one(room_bytes, first_delta, timestamp_delta))
        taken = self._ahead.popleft()
        self._at += taken.record_count
        return taken

    def _plan(self, room_bytes: int) -> None:
        """Encode the records of the next batches together, assuming that each batch has space for
        `room_bytes`."""
        self._planned_bytes = room_bytes
        counts: list[int] = []
        at, end = self._at, len(self.values)
        stop = int(np.searchsorted(self._short_ends, _before(self._short_ends, at) + AHEAD_BYTES))
        while at < min(end, stop + 1):
            count = _fitting(self._short_ends, at, room_bytes)
            if count > SHORT_DELTA_COUNT:
                count = _fitting(self._long_ends, at, room_bytes + SHORT_DELTA_COUNT)
            counts.append(max(1, min(count, LONG_DELTA_COUNT)))
            at += counts[-1]
        many = np.array(counts, dtype=np.int64)
        starts = np.cumsum(many) - many
        total = int(many.sum())
        body, ends = self._encode(np.arange(total) - np.repeat(starts, many), 0)
        begin = 0
        for count, end in zip(counts, ends[starts + many - 1].tolist(), strict=True):
            self._ahead.append(EncodedRecords(body[begin:end], count))
            begin = end

    def _take_one(self, room_bytes: int, first_delta: int, timestamp_delta: int) -> EncodedRecords:
        # An upper bound: fewer records fit if their deltas are long.
        most = max(1, _fitting(self._short_ends, self._at, room_bytes))
        deltas = np.arange(first_delta, first_delta + most)
        lengths = self._lengths[self._at : self._at + most] + varint_widths(deltas)
        ends = _ends(lengths + len(varint(timestamp_delta)))
        count = max(1, int(np.searchsorted(ends, room_bytes, side="right")))
        body, _ends_of = self._encode(deltas[:count], timestamp_delta)
        return EncodedRecords(body, count)

    def _encode(self, deltas: Numbers, timestamp_delta: int) -> tuple[memoryview, Numbers]:
        """Encode the next records of the run with the given offset deltas. Returns their bytes, and
        the end position of each record in the bytes."""
        start, count = self._at, len(deltas)
        same = NO_ATTRIBUTES + varint(timestamp_delta)
        lengths = self._lengths[start : start + count] + varint_widths(deltas)
        lengths += len(same) - len(NO_ATTRIBUTES)
        keys = [self._key_varints[0]]
        if self.keys is not None:
            keys = [self._key_varints.slice(start, count), self.keys.slice(start, count)]
        joined = pc.binary_join_element_wise(
            varints(lengths),
            pa.scalar(same, BYTES),
            varints(deltas),
            *keys,
            self._value_varints.slice(start, count),
            self.values.slice(start, count),
            *self.headers.slice(start, count),
            pa.scalar(b"", BYTES),
            null_handling="replace",
            null_replacement=b"",
        )
        ends = _ends(lengths)
        return memoryview(joined.buffers()[2])[: int(ends[-1])], ends


def _ends(lengths: Numbers) -> Numbers:
    """Return the end position in bytes of each record, given the lengths of the records. A length
    field precedes each record."""
    ends: Numbers = np.cumsum(lengths + varint_widths(lengths))
    return ends


def _before(ends: Numbers, at: int) -> int:
    return int(ends[at - 1]) if at else 0


def _fitting(ends: Numbers, at: int, room_bytes: int) -> int:
    """Return the number of records, starting with record `at`, that fit into `room_bytes`."""
    return int(np.searchsorted(ends, _before(ends, at) + room_bytes, side="right")) - at
