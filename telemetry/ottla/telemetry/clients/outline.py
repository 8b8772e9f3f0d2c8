"""Separation of a client's push into its series (the outline), which seldom change, and their
values.

Pure. A client pushes the same series repeatedly, and thousands of clients with the same program
push equal series. If an equal outline was received before, the earlier object is returned. A
comparison by identity then shows that the outline is unchanged. Equal outlines also share memory.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.telemetry.clients.otlp import Attributes, HistogramValue, Point, PointKind

OUTLINE_SERIES_MAX = 200_000
"""Maximum number of series in all stored outlines (the lists of series in pushes). With a smaller
number, outlines are dropped too early if clients have many different attributes. With a larger
number, more memory is used."""

Value = int | float | HistogramValue


class Series(NamedTuple):
    """The metric series to which a data point belongs: its name, its attributes and its kind."""

    name: str
    attributes: Attributes
    kind: str
    """Kind of the series' metric for Prometheus: counter, gauge or histogram."""
    is_delta: bool


Outline = tuple[Series, ...]
"""The series of one client's push, in the order in which they were sent."""


class Outlines:
    """Cache of recently used outlines (the lists of series in pushes). Used by one thread only."""

    def __init__(self, series_max: int = OUTLINE_SERIES_MAX) -> None:
        self._series_max = series_max
        self._known: dict[Outline, Outline] = {}
        self._series_count = 0

    def shared(self, outline: Outline) -> Outline:
        """Return the stored object for an equal outline (the series of a push). If no equal outline
        is stored, store `outline` and return it."""
        known = self._known.get(outline)
        if known is not None:
            return known
        if self._series_count + len(outline) > self._series_max:
            self._known.clear()
            self._series_count = 0
        self._known[outline] = outline
        self._series_count += len(outline)
        return outline


def split_points(points: Iterable[Point]) -> tuple[Outline, list[Value]]:
    """Return the series and the values of data points, both in the order of the points."""
    outline, values = [], []
    for point in points:
        outline.append(Series(point.name, point.attributes, kind_of(point), point.is_delta))
        values.append(point.value)
    return tuple(outline), values


def kind_of(point: Point) -> str:
    """Return the kind of a data point's metric for Prometheus: counter, gauge or histogram."""
    if point.kind is PointKind.HISTOGRAM:
        return "histogram"
    return "counter" if point.kind is PointKind.SUM and point.is_monotonic else "gauge"
