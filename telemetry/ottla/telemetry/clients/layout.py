"""Positions of the numbers in a push. If the next push has the same layout, it need not be decoded.

Pure. A client pushes the same series repeatedly, and OTLP encodes values and times as eight bytes
each. Two pushes of the same series differ only in these bytes. A layout contains their positions.
If all other bytes (names, tags, lengths) are equal, the push decodes to the same series, with the
values at these positions.

The other bytes are stored as a 64-bit hash with a secret key of the process, so that no client can
forge the hash. Storing the bytes themselves would take kilobytes for each of ten thousand clients.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from ottla.model.values import frozen
from ottla.telemetry.clients.otlp_bounds import DELIMITED, FIXED32, FIXED64, VARINT, varint
from ottla.telemetry.clients.outline import Value

LAYOUTS_MAX = 1_000
"""Maximum number of stored layouts (positions of the numbers in a push). Many clients may have the
same layout. Above the maximum, all layouts are deleted."""


class NumberSlot(NamedTuple):
    """Position of eight bytes in a push that may differ from push to push: a value or a time."""

    position: int
    code: str
    """Struct format code of the number: d or q for a value, x for a time."""


@frozen
class Layout:
    """Positions of the numbers in clients' pushes that have the same size and series."""

    size_bytes: int
    resource_end: int
    """Position, in bytes, of the end of the resource in a push with a single ResourceMetrics. The
    client's labels are inserted there."""
    fixed: Struct
    """Struct that reads all bytes of a push except the numbers that may differ between pushes."""
    values: Struct


class PushShape(NamedTuple):
    """Shape of a client's push: the positions of its numbers (layout), and the hash of all bytes
    that are not numbers."""

    layout: Layout
    fixed_hash: int

    def values_of(self, data: bytes) -> list[Value] | None:
        """Return the values in a client's push of this shape. Returns None if the push has another
        shape: other positions of numbers, or other bytes between them."""
        layout = self.layout
        if len(data) != layout.size_bytes or hash(layout.fixed.unpack(data)) != self.fixed_hash:
            return None
        return list(layout.values.unpack(data))


class Layouts:
    """Cache of layouts: the positions of the numbers in the pushes of clients. Used by one thread
    only."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, tuple[NumberSlot, ...]], Layout] = {}

    def shape_of(self, data: bytes, values: Sequence[Value]) -> PushShape | None:
        """Return the shape of a push: the positions of its numbers, and a hash of its other bytes.
        `values` are the decoded values of the push.

        Returns None if the push has values that are not numbers, more than one resource, or any
        other unusual content.
        """
        try:
            resource_end, slots = _look_through(data)
        except _UnusualError:
            return None
        key = len(data), resource_end, slots
        layout = self._known.get(key)
        if layout is None:
            if len(self._known) >= LAYOUTS_MAX:
                self._known.clear()
            layout = self._known[key] = _layout(*key)
        shape = PushShape(layout, hash(layout.fixed.unpack(data)))
        # The bytes at these positions must be the decoded values, with the same types and without
        # NaN.
        lies_there = shape.values_of(data) or []
        is_alike = list(map(type, lies_there)) == list(map(type, values)) and lies_there == values
        return shape if is_alike else None


class _UnusualError(Exception):
    """Error for unusual content of a client's push. The positions of the numbers in such a push are
    not stored."""


def _layout(size_bytes: int, resource_end: int, slots: Sequence[NumberSlot]) -> Layout:
    fixed, values = ["<"], ["<"]
    at = 0
    for slot in slots:
        gap = slot.position - at
        fixed.append(f"{gap}s8x")
        values.append(f"{gap}x8x" if slot.code == "x" else f"{gap}x{slot.code}")
        at = slot.position + 8
    fixed.append(f"{size_bytes - at}s")
    values.append(f"{size_bytes - at}x")
    return Layout(size_bytes, resource_end, Struct("".join(fixed)), Struct("".join(values)))


class _Field(NamedTuple):
    """One field of a Protobuf message, and the position of its content."""

    number: int
    kind: int
    begin: int
    end: int


def _look_through(data: bytes) -> tuple[int, tuple[NumberSlot, ...]]:
    """Return the position of the end of the resource in a push, and the positions of all numbers.
    Raises `_UnusualError` if the push has unusual content.

    The relevant fields and their Protobuf numbers are: MetricsData 1 → ResourceMetrics 1 resource,
    2 → ScopeMetrics 2 → Metric 5 gauge or 7 sum 1 → NumberDataPoint: 2 and 3 times, 4 a double, 6
    an integer.
    """
    tops = list(_fields(data, 0, len(data)))
    if len(tops) != 1 or tops[0].number != 1 or tops[0].kind != DELIMITED:
        raise _UnusualError
    parts = list(_fields(data, tops[0].begin, tops[0].end))
    resource_end = tops[0].begin
    slots: list[NumberSlot] = []
    for at, scope in enumerate(parts):
        if scope.number == 1:
            resource_end = scope.end
            if at:
                raise _UnusualError  # a resource must be first, and occur at most once
        if scope.number != 2:
            continue
        for metric in _fields(data, scope.begin, scope.end):
            if metric.number == 2:
                slots += _slots_of_metric(data, metric)
    return resource_end, tuple(slots)


def _slots_of_metric(data: bytes, metric: _Field) -> Iterator[NumberSlot]:
    kinds = [field for field in _fields(data, metric.begin, metric.end) if field.number >= 5]
    kinds = [field for field in kinds if field.number != _METADATA]
    if len(kinds) != 1 or kinds[0].number not in (_GAUGE, _SUM) or kinds[0].kind != DELIMITED:
        raise _UnusualError
    for point in _fields(data, kinds[0].begin, kinds[0].end):
        if point.number == 1:
            if point.kind != DELIMITED:
                raise _UnusualError
            yield from _slots_of_point(data, point)


def _slots_of_point(data: bytes, point: _Field) -> Iterator[NumberSlot]:
    value_count = 0
    for field in _fields(data, point.begin, point.end):
        code = _CODES.get(field.number)
        if code is None:
            continue
        if field.kind != FIXED64:
            raise _UnusualError
        value_count += code != "x"
        yield NumberSlot(field.begin, code)
    if value_count != 1:
        raise _UnusualError


_GAUGE, _SUM, _METADATA = 5, 7, 12
_CODES = {2: "x", 3: "x", 4: "d", 6: "q"}


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """Yield the fields of the Protobuf message in `data[at:end]`. The message must be valid."""
    while at < end:
        key, at = varint(data, at, end)
        kind = key & 7
        if kind == VARINT:
            begin = at
            _, at = varint(data, at, end)
        elif kind == DELIMITED:
            length, begin = varint(data, at, end)
            at = begin + length
        elif kind in (FIXED64, FIXED32):
            begin, at = at, at + (8 if kind == FIXED64 else 4)
        else:
            raise _UnusualError
        if at > end:
            raise _UnusualError
        yield _Field(key >> 3, kind, begin, at)
