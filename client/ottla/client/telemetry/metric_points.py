"""Named values of one instant, the choice that a subscription makes among them, and deltas.

Pure.  Names are KIP-714's, `org.apache.kafka.producer.…`; labels are pairs of texts.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

ALL_METRICS = "*"
"""The text that asks for every metric, where it is alone.  An empty prefix asks for the same."""

Labels: TypeAlias = tuple[tuple[str, str], ...]


class MetricPointKind(Enum):
    """The kind of a metric in OTLP."""

    SUM = auto()
    """A monotonic total since the client's start."""
    GAUGE = auto()


class MetricPoint(NamedTuple):
    """One value of one metric."""

    name: str
    kind: MetricPointKind
    value: float
    labels: Labels = ()


class DatedPoint(NamedTuple):
    """A point with the start of the interval that its value covers, ns since 1970."""

    point: MetricPoint
    start_ns: int


def gauge(name: str, value: float, labels: Labels = ()) -> MetricPoint:
    """Return a point of a gauge."""
    return MetricPoint(name, MetricPointKind.GAUGE, value, labels)


def total(name: str, value: float, labels: Labels = ()) -> MetricPoint:
    """Return a point of a monotonic sum."""
    return MetricPoint(name, MetricPointKind.SUM, value, labels)


def is_wanted(name: str, prefixes: Sequence[str]) -> bool:
    """Return True if a subscription's prefixes ask for a metric."""
    return prefixes == [ALL_METRICS] or any(name.startswith(prefix) for prefix in prefixes)


class Ledger:
    """The sums as they were last accepted by a broker, for deltas.

    `read` gives points their intervals; `settle` has the next deltas begin where those ended, and
    `reset` at the client's start (KIP-714: after a change of temporality).
    """

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._accepted: dict[tuple[str, Labels], tuple[float, int]] = {}
        self._read: dict[tuple[str, Labels], tuple[float, int]] = {}

    def read(
        self, points: Iterable[MetricPoint], *, is_delta: bool, now_ns: int
    ) -> list[DatedPoint]:
        """Return the points with their intervals, sums as deltas if `is_delta`."""
        self._read = {}
        found = []
        for point in points:
            start_ns = self._start_ns
            if point.kind is MetricPointKind.SUM and is_delta:
                key = point.name, point.labels
                self._read[key] = point.value, now_ns
                before, start_ns = self._accepted.get(key, (0, self._start_ns))
                point = point._replace(value=point.value - before)
            found.append(DatedPoint(point, start_ns))
        return found

    def settle(self) -> None:
        """Count what was read last as reported: it was accepted, or its answer was lost."""
        self._accepted.update(self._read)
        self._read = {}

    def reset(self) -> None:
        """Report every sum from the client's start on."""
        self._accepted, self._read = {}, {}
