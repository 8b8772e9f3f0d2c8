"""Split pushes: equal outlines are one object, and a bounded number is remembered."""

from ottla.telemetry.clients.otlp import HistogramValue, Point, PointKind
from ottla.telemetry.clients.outline import Outlines, Series, split_points

HISTOGRAM = HistogramValue(1, 2.0, (1.0,), (0, 1))


def points(*names: str) -> list[Point]:
    return [
        Point(name, "", PointKind.SUM, True, True, (("topic", "t"),), 0, 1, value)
        for value, name in enumerate(names)
    ]


def test_series_and_values_lie_at_the_same_place() -> None:
    given = [
        *points("sent"),
        Point("in.flight", "", PointKind.SUM, False, False, (), 0, 1, 7),
        Point("level", "", PointKind.GAUGE, False, False, (), 0, 1, 0.5),
        Point("latency", "", PointKind.HISTOGRAM, True, True, (), 0, 1, HISTOGRAM),
    ]
    assert split_points(given) == (
        (
            Series("sent", (("topic", "t"),), "counter", True),
            Series("in.flight", (), "gauge", False),
            Series("level", (), "gauge", False),
            Series("latency", (), "histogram", True),
        ),
        [0, 7, 0.5, HISTOGRAM],
    )


def test_an_outline_seen_before_is_the_same_object() -> None:
    outlines = Outlines()
    first, _ = split_points(points("a", "b"))
    second, _ = split_points(points("a", "b"))
    other, _ = split_points(points("b", "a"))
    assert outlines.shared(first) is first
    assert outlines.shared(second) is first
    assert outlines.shared(other) is other


def test_outlines_are_forgotten_before_they_are_too_many() -> None:
    outlines = Outlines(series_max=4)
    first, _ = split_points(points("a", "b"))
    second, _ = split_points(points("c", "d"))
    third, _ = split_points(points("e"))
    for outline in (first, second, third):
        outlines.shared(outline)
    again, _ = split_points(points("a", "b"))
    assert outlines.shared(again) is again, "the first was forgotten"
    again, _ = split_points(points("e"))
    assert outlines.shared(again) is third
