"""Metrics of a producer: KIP-714's standard ones, and others of Java's client that cost nothing."""

from collections.abc import Callable, Iterator

from ottla.client.telemetry.client_metrics import ClientKind, extent
from ottla.client.telemetry.measures import ProduceMeasures
from ottla.client.telemetry.metric_points import MetricPoint, gauge, total

PREFIX = ClientKind.PRODUCER.value


class ProducerMetrics:
    """The points of one producer; `buffered_bytes` returns what `buffer.memory` holds now."""

    def __init__(
        self,
        measures: ProduceMeasures,
        *,
        buffer_bytes_max: int,
        buffered_bytes: Callable[[], int],
    ) -> None:
        self._measures = measures
        self._buffer_bytes_max = buffer_bytes_max
        self._buffered_bytes = buffered_bytes

    def points(self, elapsed_s: float) -> Iterator[MetricPoint]:
        """Yield the points of now; averages are of the time since the last call."""
        measures = self._measures
        yield from extent(f"{PREFIX}produce.throttle.time", measures.throttle_times_ms.take())
        yield from extent(f"{PREFIX}record.queue.time", measures.queue_times_ms.take())
        yield from extent(f"{PREFIX}batch.size", measures.batch_bytes.take())
        per_request = measures.records_per_request.take()
        yield gauge(f"{PREFIX}records.per.request.avg", per_request.average)
        yield total(f"{PREFIX}record.send.total", measures.record_count)
        yield total(f"{PREFIX}record.retry.total", measures.retry_count)
        yield total(f"{PREFIX}record.error.total", measures.error_count)
        yield gauge(f"{PREFIX}buffer.total.bytes", self._buffer_bytes_max)
        available = self._buffer_bytes_max - self._buffered_bytes()
        yield gauge(f"{PREFIX}buffer.available.bytes", max(0, available))
