"""Metrics of a producer: the standard metrics of KIP-714, and metrics of the Java client that need
no additional measurement."""

from collections.abc import Callable, Iterator
from operator import sub

from ottla.client.telemetry.client_metrics import ClientKind, extent
from ottla.client.telemetry.measures import ProduceMeasures
from ottla.client.telemetry.metric_points import MetricPoint, gauge, total

PREFIX = ClientKind.PRODUCER.value


class ProducerMetrics:
    """Source of the metrics of one producer. `buffered_bytes` is a function that returns the used
    part of `buffer.memory`, in bytes."""

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
        self._before = self._totals()

    def _totals(self) -> tuple[int, int, int]:
        """Return the number of requests, records and bytes since the client was opened."""
        measures = self._measures
        records = measures.record_count + measures.retry_count
        return measures.request_count, records, measures.batch_bytes

    def points(self, elapsed_s: float) -> Iterator[MetricPoint]:
        """Yield the current values of the metrics. Averages cover the time since the previous
        call."""
        measures = self._measures
        before, self._before = self._before, self._totals()
        requests, records, size_bytes = map(sub, self._before, before)
        batches = measures.queue_times_ms.count
        throttled = measures.throttle_times_ms.take_of(requests)
        yield from extent(f"{PREFIX}produce.throttle.time", throttled)
        yield from extent(f"{PREFIX}record.queue.time", measures.queue_times_ms.take())
        yield gauge(f"{PREFIX}batch.size.avg", size_bytes / max(batches, 1))
        yield gauge(f"{PREFIX}records.per.request.avg", records / max(requests, 1))
        yield total(f"{PREFIX}record.send.total", measures.record_count)
        yield total(f"{PREFIX}record.retry.total", measures.retry_count)
        yield total(f"{PREFIX}record.error.total", measures.error_count)
        yield gauge(f"{PREFIX}buffer.total.bytes", self._buffer_bytes_max)
        available = self._buffer_bytes_max - self._buffered_bytes()
        yield gauge(f"{PREFIX}buffer.available.bytes", max(0, available))
