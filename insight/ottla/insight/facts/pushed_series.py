"""Converts the metrics that clients have pushed (KIP-714) to series over time. Pure."""

from collections.abc import Iterable

from ottla.client.admin_parts.admin_telemetry import PushedMetrics
from ottla.model.errors import CorruptDataError
from ottla.model.values import frozen
from ottla.telemetry.clients.otlp import HistogramValue, Point, decode, points_of

SERIES_MAX = 1_000
"""Maximum number of metric series of one client. Further metrics in its pushes are left out."""
KNOWN_PARTS = {
    "latency": "latency",
    "time": "latency",
    "error": "errors",
    "errors": "errors",
    "failed": "errors",
    "retries": "errors",
    "lag": "lag",
    "rate": "rates",
    "bytes": "rates",
}


@frozen(kw_only=True)
class PushedSeries:
    """Values of one metric of one client over time. Each push (report of the client) that has the
    metric adds one value."""

    name: str
    """Name of the metric with its attributes, as in `a.b{node.id=1}`."""
    unit: str
    """Unit of the metric as the client names it. Empty if it names none."""
    topic: str
    """Category of the metric: latency, errors, lag, rates or other."""
    values: tuple[tuple[int, float], ...]
    """Pairs of the time at which the broker received the push, in ms since 1970, and the metric's
    value. The value of a histogram is its mean."""

    @property
    def latest(self) -> float:
        """Value of the metric in the client's latest push."""
        return self.values[-1][1]


def series_of_pushes(pushes: Iterable[PushedMetrics]) -> tuple[tuple[PushedSeries, ...], int]:
    """Return the metric series in the pushes of one client, sorted by name, and the number of
    pushes that cannot be decoded."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    corrupt_count = 0
    for push in sorted(pushes, key=lambda one: one.received_ms):
        try:
            points = list(points_of(decode(push.otlp)))
        except CorruptDataError:
            corrupt_count += 1
            continue
        for point in points:
            key = (_name_of(point), point.unit)
            if key in found or len(found) < SERIES_MAX:
                found.setdefault(key, []).append((push.received_ms, _number_of(point)))
    return (
        tuple(
            PushedSeries(name=name, unit=unit, topic=_topic_of(name), values=tuple(values))
            for (name, unit), values in sorted(found.items())
        ),
        corrupt_count,
    )


def _name_of(point: Point) -> str:
    attributes = ",".join(f"{name}={value}" for name, value in point.attributes)
    return f"{point.name}{{{attributes}}}" if attributes else point.name


def _number_of(point: Point) -> float:
    if isinstance(point.value, HistogramValue):
        return point.value.sum / point.value.count if point.value.count else 0.0
    return float(point.value)


def _topic_of(name: str) -> str:
    parts = name.partition("{")[0].replace("-", ".").replace("_", ".").split(".")
    return next((KNOWN_PARTS[one] for one in parts if one in KNOWN_PARTS), "other")
