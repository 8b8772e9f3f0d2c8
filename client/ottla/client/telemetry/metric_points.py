"""Named metric values at one point in time, their selection by a telemetry subscription, and the
deltas of sums.

Pure. The names are defined by KIP-714 (`org.apache.kafka.producer.…`). Labels are pairs of texts.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

ALL_METRICS = "*"
"""Prefix in a subscription that selects all metrics. It must be the only prefix. An empty prefix
also selects all metrics."""

Labels: TypeAlias = tuple[tuple[str, str], ...]


class MetricPointKind(Enum):
    """Kind of metric in OTLP: gauge or sum."""

    SUM = auto()
    """Total since the client was opened, which never decreases."""
    GAUGE = auto()


class MetricPoint(NamedTuple):
    """Value of one metric, with its labels, at one point in time."""

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
    """Return the value of a sum that never decreases, as a metric point."""
    return MetricPoint(name, MetricPointKind.SUM, value, labels)


def is_wanted(name: str, prefixes: Sequence[str]) -> bool:
    """Return whether the prefixes in a telemetry subscription select a metric."""
    return prefixes == [ALL_METRICS] or any(name.startswith(prefix) for prefix in prefixes)


class AcceptedSums:
    """Values of all sums in the last push that a broker accepted. Deltas are the differences from
    these values.

    `read` adds the covered interval to metric points. After `settle`, the next deltas start at the
    end of these intervals. After `reset`, they start when the client was opened, as KIP-714
    requires after a change of temporality.
    """

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._accepted: dict[tuple[str, Labels], tuple[float, int]] = {}
        self._read: dict[tuple[str, Labels], tuple[float, int]] = {}

    def read(
        self, points: Iterable[MetricPoint], *, is_delta: bool, now_ns: int
    ) -> list[DatedPoint]:
        """Return the metric points with the intervals that they cover. If `is_delta` is True, sums
        become deltas."""
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
        """Treat the metric points of the last `read` as reported, because the broker accepted them
        or its response was lost."""
        self._accepted.update(self._read)
        self._read = {}

    def reset(self) -> None:
        """Treat all sums as not yet reported, so that the next report covers the time since the
        client was opened."""
        self._accepted, self._read = {}, {}
