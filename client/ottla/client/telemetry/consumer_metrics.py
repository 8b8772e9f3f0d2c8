"""Metrics of a consumer: the standard metrics of KIP-714, and metrics of the Java client that need
no additional measurement."""

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from operator import itemgetter

from ottla.client.telemetry.client_metrics import ClientKind, extent
from ottla.client.telemetry.measures import (
    MS_PER_S,
    CoordinatorMeasures,
    FetchMeasures,
    PollIdleTime,
)
from ottla.client.telemetry.metric_points import MetricPoint, gauge, total
from ottla.model.ids import TopicPartition

PREFIX = ClientKind.CONSUMER.value

LAG_PARTITIONS_MAX = 500
"""Maximum number of partitions whose lag is reported. The partitions with the largest lags are
selected. The lag of a partition costs about 6 µs of CPU time."""


class ConsumerMetrics:
    """Source of the metrics of one consumer.

    `lags` is a function that yields the lag of each partition, in records. `now_s` is the clock of
    the measurements.
    """

    def __init__(
        self,
        *,
        fetches: FetchMeasures,
        idle: PollIdleTime,
        coordinator: CoordinatorMeasures | None,
        lags: Callable[[], Iterable[tuple[TopicPartition, int]]],
        assigned_count: Callable[[], int],
        now_s: Callable[[], float],
    ) -> None:
        self._fetches = fetches
        self._idle = idle
        self._coordinator = coordinator
        self._lags = lags
        self._assigned_count = assigned_count
        self._now_s = now_s

    def points(self, elapsed_s: float) -> Iterator[MetricPoint]:
        """Yield the current values of the metrics. Averages cover the time since the previous
        call."""
        yield gauge(f"{PREFIX}poll.idle.ratio.avg", self._idle.take(self._now_s()))
        if self._coordinator is not None:
            yield from self._coordinator_points(self._coordinator)
        fetches = self._fetches
        manager = f"{PREFIX}fetch.manager."
        throttled = fetches.throttle_times_ms.take_of(fetches.latencies_s.count)
        yield from extent(f"{manager}fetch.latency", fetches.latencies_s.take(MS_PER_S))
        yield from extent(f"{manager}fetch.throttle.time", throttled)
        yield from extent(f"{manager}fetch.size", fetches.fetch_bytes.take())
        yield total(f"{manager}bytes.consumed.total", fetches.fetched_bytes)
        lags = nlargest(LAG_PARTITIONS_MAX, self._lags(), key=itemgetter(1))
        yield gauge(f"{manager}records.lag.max", lags[0][1] if lags else 0)
        for (topic, partition), lag in lags:
            labels = (("topic", topic), ("partition", str(partition)))
            yield gauge(f"{manager}records.lag", lag, labels)

    def _coordinator_points(self, measures: CoordinatorMeasures) -> Iterator[MetricPoint]:
        coordinator = f"{PREFIX}coordinator."
        yield from extent(f"{coordinator}commit.latency", measures.commits_s.take(MS_PER_S))
        yield from extent(f"{coordinator}rebalance.latency", measures.rebalances_s.take(MS_PER_S))
        summed_ms = measures.rebalances_sum_s * MS_PER_S
        yield total(f"{coordinator}rebalance.latency.total", summed_ms)
        yield gauge(f"{coordinator}assigned.partitions", self._assigned_count())
