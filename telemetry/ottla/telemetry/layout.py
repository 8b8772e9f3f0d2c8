"""Where the numbers lie in a push, so that the next one of that shape need not be decoded.

Pure.  A client pushes the same series again and again, and OTLP writes their values and times as
eight bytes each: so two pushes of the same series differ in these bytes alone.  A layout knows
where they are.  Whatever else a push consists of, every name, tag and length, must be as it was:
then it decodes to the same series, and to the values that lie there.

It is remembered as a hash (64 bits, with a key of each process, so none can aim at it): the bytes
themselves would be kilobytes for each of ten thousand clients.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from ottla.model.values import frozen
from ottla.telemetry.otlp_bounds import DELIMITED, FIXED32, FIXED64, VARINT, varint
from ottla.telemetry.outline import Value

LAYOUTS_MAX = 1_000
"""Layouts that are remembered, each of many clients; beyond it they are forgotten."""


class NumberSlot(NamedTuple):
    """Eight bytes that may differ from push to push."""

    position: int
    code: str
    """d or q where it is a value, x where it is a time."""


@frozen
class Layout:
    """Where the numbers of pushes of one size lie."""

    size_bytes: int
    resource_end: int
    """Where the resource of its only ResourceMetrics ends: our labels' place."""
    fixed: Struct
    """All but the slots."""
    values: Struct


class PushShape(NamedTuple):
    """What a client pushes: a layout, and the hash of all that lies between its numbers."""

    layout: Layout
    fixed_hash: int

    def values_of(self, data: bytes) -> list[Value] | None:
        """Return the values of a push of this shape; None when it has another."""
        layout = self.layout
        if len(data) != layout.size_bytes or hash(layout.fixed.unpack(data)) != self.fixed_hash:
            return None
        return list(layout.values.unpack(data))


class Layouts:
    """Those seen lately; belongs to one thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, tuple[NumberSlot, ...]], Layout] = {}

    def shape_of(self, data: bytes, values: Sequence[Value]) -> PushShape | None:
        """Return the shape of a push that decodes to these values.

        None where it has more than numbers, more than one resource, or anything unusual.
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
        # What lies there must be what was decoded: the types too, and no NaN.
        lies_there = shape.values_of(data) or []
        is_alike = list(map(type, lies_there)) == list(map(type, values)) and lies_there == values
        return shape if is_alike else None


class _UnusualError(Exception):
    """The push is not of the kind that has a layout."""


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
    """One field of a message, and where its content lies."""

    number: int
    kind: int
    begin: int
    end: int


def _look_through(data: bytes) -> tuple[int, tuple[NumberSlot, ...]]:
    """Return where the resource ends, and every slot; `_UnusualError` for what has no layout.

    MetricsData 1 → ResourceMetrics 1 resource, 2 → ScopeMetrics 2 → Metric 5 gauge or 7 sum
    1 → NumberDataPoint: 2 and 3 times, 4 a double, 6 an integer.
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
                raise _UnusualError  # it comes first, and once, if at all
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
    """Yield the fields of the message in `data[at:end]`, which is known to be one."""
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
