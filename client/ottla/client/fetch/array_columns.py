"""Columns of records whose fields numpy has located in the bytes of a response. Python objects are
created on demand. Pure.

Records that `record_fields` cannot validate, and records whose offsets do not increase, are scanned
one by one by `ottla.wire.records`, which reports the error. Invariant: SameRecords (the columns
equal the result of the scan).
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise, repeat
from operator import attrgetter

import numpy as np

from ottla.client.fetch.record_batch import ConsumerRecord, RecordOrigin
from ottla.model.ids import Offset
from ottla.wire.batch import Buffer
from ottla.wire.record_fields import Fields, HeaderFields, read_fields
from ottla.wire.record_layouts import Ints, ValueRun
from ottla.wire.records import Body, RecordHeaders

NO_HEADERS: RecordHeaders = ()
WHOLE_TO_PART_MAX = 2
"""Maximum ratio of the size of a response to the size of its records at which records are decoded
without copying them.

Records that are not copied keep the whole response in memory. Above this ratio, they are copied, so
that the response can be freed.
"""
SAME_BYTES_MAX = 1_024
"""Maximum size of a record's value, in bytes, up to which numpy creates the values if all have the
same size. It copies them into an array first. Longer values cost more to copy than to slice one by
one."""
COPIED_BYTES = 65_536
"""Number of bytes of values that are copied at a time, so that they stay in the processor's
cache."""


RUN_ROWS_MIN = 16
"""Minimum number of values that are read together with the other values of their batches. Fewer
values are copied one by one."""

_first_row = attrgetter("first_row")


class ArrayColumns:
    """Columns of records in one buffer, with the positions of their fields."""

    __slots__ = (
        "_data",
        "_fields",
        "_first",
        "_has_keys",
        "_has_nulls",
        "_names",
        "_run",
        "_run_values",
        "_value_bytes",
        "origin",
        "row_count",
    )

    def __init__(
        self,
        origin: RecordOrigin,
        data: bytes,
        fields: Fields,
        names: dict[bytes, str],
        first_row: int,
    ) -> None:
        """Initialise with the positions of the fields.

        `names` contains the decoded names of all headers. Rows before `first_row` are excluded.
        """
        self.origin = origin
        self._data = data
        self._fields = fields
        self._names = names
        self._first = first_row
        self._has_keys = bool(fields.key_bytes.max(initial=-1) >= 0)
        sizes = fields.value_bytes
        smallest = int(sizes.min()) if sizes.size else 0
        self._has_nulls = smallest < 0
        """True if the value of any record is null."""
        self._value_bytes = smallest if sizes.size and smallest == int(sizes.max()) else None
        """Size of each value in bytes.  None if the sizes differ."""
        self._run: ValueRun | None = None
        self._run_values: tuple[bytes, ...] = ()
        """Values of the batch `_run`, of which a reader has read only some."""
        self.row_count = len(fields.offsets) - first_row

    def end_within(self, start: int, size_bytes: int) -> int:
        """Return the end of the longest range of rows that starts at `start` and has at most
        `size_bytes` encoded bytes. The range has at least one row."""
        fields, first = self._fields, self._first
        bound = int(fields.record_at[first + start]) + size_bytes
        end = int(fields.record_end.searchsorted(bound, side="right")) - first
        return max(end, start + 1)

    def offset_of(self, row: int) -> Offset:
        """Return the offset of one record."""
        return Offset(int(self._fields.offsets[self._first + row]))

    def size_bytes(self, start: int, end: int) -> int:
        """Return the encoded size of the rows [start, end), in bytes."""
        first = self._first
        start_at = int(self._fields.record_at[first + start])
        return int(self._fields.record_end[first + end - 1]) - start_at

    def offsets(self, start: int, end: int) -> Sequence[int]:
        """Return the offset of each row."""
        first, last = self.offset_of(start), self.offset_of(end - 1)
        if last - first == end - 1 - start:
            return range(first, last + 1)
        return self._part(self._fields.offsets, start, end)

    def timestamps_ms(self, start: int, end: int) -> Sequence[int]:
        """Return the timestamp of each row, in ms since 1970."""
        return self._part(self._fields.timestamps_ms, start, end)

    def keys(self, start: int, end: int) -> list[bytes | None]:
        """Return the key of each row; None for a record without a key."""
        if not self._has_keys:
            return [None] * (end - start)
        return self._cut(self._fields.key_at, self._fields.key_bytes, start, end, has_nulls=True)

    def values(self, start: int, end: int) -> list[bytes | None]:
        """Return the value of each row; None for a tombstone."""
        runs = self._fields.value_runs
        if runs is not None and end - start >= RUN_ROWS_MIN:
            return self._read_runs(runs, self._first + start, self._first + end)
        size = self._value_bytes
        if size is not None and 0 < size <= SAME_BYTES_MAX:
            return self._cut_alike(self._fields.value_at, size, start, end)
        return self._cut(
            self._fields.value_at, self._fields.value_bytes, start, end, has_nulls=self._has_nulls
        )

    def value_views(self, start: int, end: int) -> list[memoryview | None]:
        """Return the value of each row as a memoryview, without copying it; None for a
        tombstone."""
        view = memoryview(self._data)
        starts = self._part(self._fields.value_at, start, end)
        sizes = self._part(self._fields.value_bytes, start, end)
        return [
            None if size < 0 else view[at : at + size]
            for at, size in zip(starts, sizes, strict=True)
        ]

    def headers(self, start: int, end: int) -> list[RecordHeaders]:
        """Return the headers of each row."""
        headers = self._fields.headers
        if headers is None:
            return [NO_HEADERS] * (end - start)
        bounds = headers.starts[self._first + start : self._first + end + 1].tolist()
        begin, stop = bounds[0], bounds[-1]
        data, names = self._data, self._names
        pairs = [
            (names[data[at : at + size]], None if length < 0 else data[place : place + length])
            for at, size, place, length in zip(
                headers.key_at[begin:stop].tolist(),
                headers.key_bytes[begin:stop].tolist(),
                headers.value_at[begin:stop].tolist(),
                headers.value_bytes[begin:stop].tolist(),
                strict=True,
            )
        ]
        return [tuple(pairs[bound - begin : after - begin]) for bound, after in pairwise(bounds)]

    def records(self, start: int, end: int) -> list[ConsumerRecord]:
        """Return the rows [start, end) as ConsumerRecord objects."""
        (topic, partition), epoch, stamp = self.origin
        new = tuple.__new__
        # `strict` is not possible: `repeat` is endless.
        rows = zip(
            repeat(topic),
            repeat(partition),
            self.offsets(start, end),
            self.timestamps_ms(start, end),
            self.keys(start, end),
            self.values(start, end),
            repeat(NO_HEADERS) if self._fields.headers is None else self.headers(start, end),
            repeat(epoch),
            repeat(stamp),
            strict=False,
        )
        # Half the cost of calling ConsumerRecord(…) once for every record.
        return list(map(new, repeat(ConsumerRecord), rows))

    def _part(self, column: Ints, start: int, end: int) -> list[int]:
        found: list[int] = column[self._first + start : self._first + end].tolist()
        return found

    def _cut(
        self, at: Ints, sizes: Ints, start: int, end: int, *, has_nulls: bool
    ) -> list[bytes | None]:
        data, first = self._data, self._first
        places = at[first + start : first + end]
        ends = (places + sizes[first + start : first + end]).tolist()
        if not has_nulls:
            return [data[a:b] for a, b in zip(places.tolist(), ends, strict=True)]
        # A field of length -1 (null) has an end before its start.
        return [data[a:b] if a <= b else None for a, b in zip(places.tolist(), ends, strict=True)]

    def _read_runs(self, runs: list[ValueRun], start: int, end: int) -> list[bytes | None]:
        """Return the values of the rows [start, end), counted from the first record of the
        response. If a part of a batch is requested, its other values are kept for later requests.
        """
        found: list[bytes | None] = []
        for place in range(bisect_right(runs, start, key=_first_row) - 1, len(runs)):
            run = runs[place]
            if run.first_row >= end:
                break
            if start <= run.first_row and run.end_row <= end:
                found += run.reader.unpack_from(self._data, run.value_at)
                continue
            if self._run is not run:
                self._run_values = run.reader.unpack_from(self._data, run.value_at)
                self._run = run
            first = max(0, start - run.first_row)
            found += self._run_values[first : end - run.first_row]
            if run.end_row <= end:
                self._run, self._run_values = None, ()
        return found

    def _cut_alike(self, at: Ints, size: int, start: int, end: int) -> list[bytes | None]:
        """Return the fields of the rows [start, end), which all have the same `size` in bytes.
        NumPy creates the objects, which is faster than slicing each field."""
        data = self._data
        # A view with one item for each position in the buffer; bytes are copied only when an item
        # is read.
        windows = np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))
        first, step = self._first, COPIED_BYTES // size
        places = at[first + start : first + end]
        found: list[bytes | None] = []
        for begin in range(0, end - start, step):
            found += windows[places[begin : begin + step]].tolist()
        return found


def read_columns(
    origin: RecordOrigin, data: bytes, bodies: Sequence[Body], first_offset: int
) -> ArrayColumns | None:
    """Return the columns of the records in the batches `bodies`, from `first_offset` on.

    All bodies must be parts of `data`. If all records are before `first_offset`, the columns have
    no rows. Returns None if the records must be scanned one by one.
    """
    fields = read_fields(data, bodies)
    if fields is None:
        return None
    offsets = fields.offsets
    if not bool((offsets[1:] > offsets[:-1]).all()):
        return None
    names: dict[bytes, str] = {}
    if fields.headers is not None:
        try:
            names = _names_of(data, fields.headers)
        except UnicodeDecodeError:
            return None
    first_row = int(offsets.searchsorted(first_offset))
    return ArrayColumns(origin, data, fields, names, first_row)


def in_one_buffer(bodies: Sequence[Body]) -> tuple[bytes, Sequence[Body]] | None:
    """Return one buffer that contains all batch bodies, and the bodies with their positions in that
    buffer.

    Returns None if the bodies are in several buffers, or if they occupy only a small part of one
    buffer.
    """
    data = bodies[0].data
    if any(body.data is not data for body in bodies):
        return None
    if isinstance(data, bytes):
        return data, bodies
    whole = data.obj if isinstance(data, memoryview) else None
    if not isinstance(whole, bytes) or len(data) * WHOLE_TO_PART_MAX < len(whole):
        return None
    before = _address_of(data) - _address_of(whole)
    return whole, [
        Body(body.header, whole, body.start + before, body.end + before) for body in bodies
    ]


def _address_of(data: Buffer) -> int:
    found: int = np.frombuffer(data, dtype=np.uint8).__array_interface__["data"][0]
    return found


def _names_of(data: bytes, headers: HeaderFields) -> dict[bytes, str]:
    """Return the decoded names of all record headers, by their encoded form. Most records share a
    few names, so each is decoded once."""
    places = zip(headers.key_at.tolist(), headers.key_bytes.tolist(), strict=True)
    return {name: name.decode() for name in {data[at : at + size] for at, size in places}}
