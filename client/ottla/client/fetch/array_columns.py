"""Columns of records whose fields numpy has found: no object is made of a record beforehand.  Pure.

What `record_fields` does not vouch for, and offsets that do not rise, are left to the scan of
`ottla.wire.records`, which says what is wrong.  Invariant: SameRecords (the columns hold what the
scan gives).
"""

from collections.abc import Sequence
from itertools import pairwise, repeat

import numpy as np

from ottla.client.fetch.record_batch import ConsumerRecord, RecordOrigin
from ottla.model.ids import Offset
from ottla.wire.batch import Buffer
from ottla.wire.record_fields import Fields, HeaderFields, read_fields
from ottla.wire.record_layouts import Ints
from ottla.wire.records import Body, RecordHeaders

NO_HEADERS: RecordHeaders = ()
WHOLE_TO_PART_MAX = 2
"""How much larger an answer may be than the records in it that are decoded in place: they keep all
of it in memory.  Those of a smaller part are copied."""
SAME_BYTES_MAX = 1_024
"""Values of one size up to this are copied into an array before objects are made of them: longer
ones cost more to copy than to cut out one by one."""
COPIED_BYTES = 65_536
"""Values copied at a time: they stay in the processor's cache."""


class ArrayColumns:
    """Records that lie in one buffer, and where their fields are."""

    __slots__ = (
        "_data",
        "_fields",
        "_first",
        "_has_keys",
        "_has_nulls",
        "_names",
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
        """`names` has the names of all headers, decoded; rows before `first_row` are left out."""
        self.origin = origin
        self._data = data
        self._fields = fields
        self._names = names
        self._first = first_row
        self._has_keys = bool(fields.key_bytes.max(initial=-1) >= 0)
        sizes = fields.value_bytes
        smallest = int(sizes.min()) if sizes.size else 0
        self._has_nulls = smallest < 0
        """Whether a value is null."""
        self._value_bytes = smallest if sizes.size and smallest == int(sizes.max()) else None
        """Size of every value; None where they are of several."""
        self.row_count = len(fields.offsets) - first_row

    def end_within(self, start: int, size_bytes: int) -> int:
        """Return the end of the rows from `start` on that fit in `size_bytes`, at least one."""
        fields, first = self._fields, self._first
        bound = int(fields.record_at[first + start]) + size_bytes
        end = int(fields.record_end.searchsorted(bound, side="right")) - first
        return max(end, start + 1)

    def offset_of(self, row: int) -> Offset:
        """Return the offset of one record."""
        return Offset(int(self._fields.offsets[self._first + row]))

    def size_bytes(self, start: int, end: int) -> int:
        """Return the size of the records as they are written."""
        first = self._first
        start_at = int(self._fields.record_at[first + start])
        return int(self._fields.record_end[first + end - 1]) - start_at

    def offsets(self, start: int, end: int) -> Sequence[int]:
        """Return the offsets."""
        first, last = self.offset_of(start), self.offset_of(end - 1)
        if last - first == end - 1 - start:
            return range(first, last + 1)
        return self._part(self._fields.offsets, start, end)

    def timestamps_ms(self, start: int, end: int) -> Sequence[int]:
        """Return the times, in ms since 1970."""
        return self._part(self._fields.timestamps_ms, start, end)

    def keys(self, start: int, end: int) -> list[bytes | None]:
        """Return the keys."""
        if not self._has_keys:
            return [None] * (end - start)
        return self._cut(self._fields.key_at, self._fields.key_bytes, start, end, has_nulls=True)

    def values(self, start: int, end: int) -> list[bytes | None]:
        """Return the values."""
        size = self._value_bytes
        if size is not None and 0 < size <= SAME_BYTES_MAX:
            return self._cut_alike(self._fields.value_at, size, start, end)
        return self._cut(
            self._fields.value_at, self._fields.value_bytes, start, end, has_nulls=self._has_nulls
        )

    def value_views(self, start: int, end: int) -> list[memoryview | None]:
        """Return the values without copying them."""
        view = memoryview(self._data)
        starts = self._part(self._fields.value_at, start, end)
        sizes = self._part(self._fields.value_bytes, start, end)
        return [
            None if size < 0 else view[at : at + size]
            for at, size in zip(starts, sizes, strict=True)
        ]

    def headers(self, start: int, end: int) -> list[RecordHeaders]:
        """Return the headers of each record."""
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
        """Return the records themselves."""
        (topic, partition), epoch, stamp = self.origin
        new = tuple.__new__
        # `strict` is no help: `repeat` has no end.
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
        # Half the cost of ConsumerRecord(…), once for every record there is.
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
        # Where the length is -1 the field ends before it begins.
        return [data[a:b] if a <= b else None for a, b in zip(places.tolist(), ends, strict=True)]

    def _cut_alike(self, at: Ints, size: int, start: int, end: int) -> list[bytes | None]:
        """Return what is of one size: NumPy makes the objects, without a slice for each."""
        data = self._data
        # Of each place in the buffer the bytes from there on; nothing is copied until it is asked.
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
    """Return the records of `bodies`, all in `data`, from an offset on; None if the scan must look.

    All of them may lie before the offset: then there are no rows.
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
    """Return the bytes that all bodies lie in, and the bodies by their places there.

    None where they lie in several, or in a part of them that is too small to keep the whole for.
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
    """Return all names there are; most headers share a few."""
    places = zip(headers.key_at.tolist(), headers.key_bytes.tolist(), strict=True)
    return {name: name.decode() for name in {data[at : at + size] for at, size in places}}
