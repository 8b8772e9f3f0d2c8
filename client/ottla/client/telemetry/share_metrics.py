"""Metrics of a share consumer, with the names of the Java client (KIP-932, KIP-714)."""

from collections.abc import Callable, Iterator

from ottla.client.telemetry.client_metrics import ClientKind, extent
from ottla.client.telemetry.measures import MS_PER_S, FetchMeasures, MeasuredValues
from ottla.client.telemetry.metric_points import MetricPoint, total

PREFIX = f"{ClientKind.CONSUMER.value}share.fetch.manager."


class ShareMeasures:
    """Measurements of one share consumer's fetch requests."""

    __slots__ = ("fetch_count", "fetches", "record_count", "records_per_fetch")

    def __init__(self) -> None:
        self.fetches = FetchMeasures()
        self.fetch_count = 0
        self.record_count = 0
        """Number of records that brokers have acquired for this consumer."""
        self.records_per_fetch = MeasuredValues()

    def note_fetch(
        self, *, latency_s: float, throttle_ms: int, size_bytes: int, record_count: int
    ) -> None:
        """Add the measurements of one response to a fetch."""
        self.fetch_count += 1
        self.fetches.latencies_s.note(latency_s)
        if throttle_ms:
            self.fetches.throttle_times_ms.note(throttle_ms)
        if size_bytes:
            self.fetches.fetch_bytes.note(size_bytes)
            self.fetches.fetched_bytes += size_bytes
        self.records_per_fetch.note(record_count)
        self.record_count += record_count


class ShareMetrics:
    """Source of the metrics of one share consumer.

    `acknowledged` is a function that returns two numbers: sent acknowledgements, and failed
    acknowledgements.
    """

    def __init__(
        self, measures: ShareMeasures, acknowledged: Callable[[], tuple[int, int]]
    ) -> None:
        self._measures = measures
        self._acknowledged = acknowledged

    def points(self, elapsed_s: float) -> Iterator[MetricPoint]:
        """Yield the current values of the metrics. Averages cover the time since the previous
        call."""
        measures, fetches = self._measures, self._measures.fetches
        throttled = fetches.throttle_times_ms.take_of(fetches.latencies_s.count)
        yield from extent(f"{PREFIX}fetch.latency", fetches.latencies_s.take(MS_PER_S))
        yield from extent(f"{PREFIX}fetch.throttle.time", throttled)
        yield from extent(f"{PREFIX}fetch.size", fetches.fetch_bytes.take())
        yield from extent(f"{PREFIX}records.per.request", measures.records_per_fetch.take())
        yield total(f"{PREFIX}fetch.total", measures.fetch_count)
        yield total(f"{PREFIX}bytes.consumed.total", fetches.fetched_bytes)
        yield total(f"{PREFIX}records.consumed.total", measures.record_count)
        sent, failed = self._acknowledged()
        yield total(f"{PREFIX}acknowledgements.send.total", sent)
        yield total(f"{PREFIX}acknowledgements.error.total", failed)
