"""Named metric values at one point in time, their selection by a subscription, and deltas of sums.

Pure. Names are defined by KIP-714 (`org.apache.kafka.producer.…`). Labels are pairs of texts.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

ALL_METRICS = "*"
"""Prefix that selects all metrics if it is the only prefix.  An empty prefix also selects all
metrics."""

Labels: TypeAlias = tuple[tuple[str, str], ...]


class MetricPointKind(Enum):
    """Kind of a metric in OTLP."""

    SUM = auto()
    """A monotonic total since the client was opened."""
    GAUGE = auto()


class MetricPoint(NamedTuple):
    """Value of one metric at one point in time."""

    name: str
    kind: MetricPointKind
    value: float
    labels: Labels = ()


class DatedPoint(NamedTuple):
    """A metric value, and the start of the interval that it covers, in ns since 1970."""

    point: MetricPoint
    start_ns: int


def gauge(name: str, value: float, labels: Labels = ()) -> MetricPoint:
    """Return the value of a gauge as a metric point."""
    return MetricPoint(name, MetricPointKind.GAUGE, value, labels)


def total(name: str, value: float, labels: Labels = ()) -> MetricPoint:
    """Return the value of a monotonic sum as a metric point."""
    return MetricPoint(name, MetricPointKind.SUM, value, labels)


def is_wanted(name: str, prefixes: Sequence[str]) -> bool:
    """Return whether the prefixes of a subscription select a metric."""
    return prefixes == [ALL_METRICS] or any(name.startswith(prefix) for prefix in prefixes)


class AcceptedSums:
    """Values of the sums that a broker has last accepted, from which deltas are computed.

    `read` adds intervals to points. `settle` starts the next deltas at the end of the intervals
    that were read last. `reset` starts them when the client was opened, as KIP-714 requires after a
    change of temporality.
    """

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._accepted: dict[tuple[str, Labels], tuple[float, int]] = {}
        self._read: dict[tuple[str, Labels], tuple[float, int]] = {}

    def read(
        self, points: Iterable[MetricPoint], *, is_delta: bool, now_ns: int
    ) -> list[DatedPoint]:
        """Return the points with their intervals.  Sums become deltas if `is_delta`."""
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
        """Count the points of the last `read` as reported, since the broker accepted them or its
        response was lost."""
        self._accepted.update(self._read)
        self._read = {}

    def reset(self) -> None:
        """Report every sum since the client was opened, as if no sum had been reported yet."""
        self._accepted, self._read = {}, {}
