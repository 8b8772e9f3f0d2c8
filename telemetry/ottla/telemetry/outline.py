"""A push taken apart into which series it has and their values: the first seldom change.

Pure.  A client pushes the same series again and again, and a thousand clients of one program the
same as each other.  So an outline that was seen before is given out as the very object that it was
then: whoever keeps it sees at a glance that nothing is new, and it takes memory once.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.telemetry.otlp import Attributes, HistogramValue, Point, PointKind

OUTLINE_SERIES_MAX = 200_000
"""Series of all outlines that are remembered.  Fewer are forgotten too early where many clients
have attributes of their own; more are memory that nobody may need."""

Value = int | float | HistogramValue


class Series(NamedTuple):
    """What a point belongs to."""

    name: str
    attributes: Attributes
    kind: str
    """counter, gauge or histogram: what it is for Prometheus."""
    is_delta: bool


Outline = tuple[Series, ...]
"""The series of one push, in the order they came."""


class Outlines:
    """Those seen lately; belongs to one thread."""

    def __init__(self, series_max: int = OUTLINE_SERIES_MAX) -> None:
        self._series_max = series_max
        self._known: dict[Outline, Outline] = {}
        self._series_count = 0

    def shared(self, outline: Outline) -> Outline:
        """Return the same outline, as the object that was seen first."""
        known = self._known.get(outline)
        if known is not None:
            return known
        if self._series_count + len(outline) > self._series_max:
            self._known.clear()
            self._series_count = 0
        self._known[outline] = outline
        self._series_count += len(outline)
        return outline


def taken_apart(points: Iterable[Point]) -> tuple[Outline, list[Value]]:
    """Return the series and the values of points, each at the same place as its point."""
    outline, values = [], []
    for point in points:
        outline.append(Series(point.name, point.attributes, kind_of(point), point.is_delta))
        values.append(point.value)
    return tuple(outline), values


def kind_of(point: Point) -> str:
    """Return what a point is for Prometheus."""
    if point.kind is PointKind.HISTOGRAM:
        return "histogram"
    return "counter" if point.kind is PointKind.SUM and point.is_monotonic else "gauge"
