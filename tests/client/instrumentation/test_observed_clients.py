"""Metrics that are read from open clients, with the SDK's reader in memory."""

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from ottla.client.instrumentation import observed_clients
from ottla.client.instrumentation.observed_clients import (
    ConsumerReadings,
    ObservedClients,
    ProducerReadings,
)
from ottla.client.telemetry.measures import CoordinatorMeasures, ProduceMeasures
from ottla.model.ids import TopicPartition


class ReadMetrics:
    """Observed clients, and what a reader gets."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.clients = ObservedClients(MeterProvider([self._reader]).get_meter("test"))

    def values(self, name: str) -> dict[str, float]:
        """Return the values of a metric, by the last attribute."""
        data = self._reader.get_metrics_data()
        return {
            str(list((point.attributes or {}).values())[-1]): point.value
            for resource in ([] if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == f"messaging.kafka.{name}"
            for point in metric.data.data_points
            if isinstance(point, NumberDataPoint)
        }


def producer(retries: int, *, client_id: str = "shop") -> ProducerReadings:
    measures = ProduceMeasures()
    measures.retry_count = retries
    return ProducerReadings(client_id, measures, lambda: 10 * retries, 1_000)


def test_clients_of_one_name_are_summed_and_totals_never_fall() -> None:
    read = ReadMetrics()
    with read.clients.observing(producer(2)):
        with (
            read.clients.observing(producer(3)),
            read.clients.observing(producer(4, client_id="b")),
        ):
            assert read.values("producer.retries") == {"shop": 5, "b": 4}
            assert read.values("producer.buffer.usage") == {"shop": 50, "b": 40}
            assert read.values("producer.buffer.limit") == {"shop": 2_000, "b": 1_000}
        assert read.values("producer.retries") == {"shop": 5, "b": 4}
        assert read.values("producer.buffer.usage") == {"shop": 20}
    with read.clients.observing(producer(1)):
        assert read.values("producer.retries") == {"shop": 6, "b": 4}


def test_totals_of_few_closed_names_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_clients, "CLOSED_NAMES_MAX", 2)
    read = ReadMetrics()
    for name in ("a", "b", "a", "c"):
        with read.clients.observing(producer(1, client_id=name)):
            pass
    assert read.values("producer.retries") == {"a": 2, "c": 1}


def test_a_consumer_reports_its_largest_lags_and_its_rebalances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observed_clients, "LAG_PARTITIONS_MAX", 2)
    read, measures = ReadMetrics(), CoordinatorMeasures()
    measures.note_rebalance(0.5)
    measures.note_rebalance(1.0)
    lags = [(TopicPartition("t", number), 10 * number) for number in range(4)]
    alone = ConsumerReadings("me", None, None, lambda: [(TopicPartition("t", 9), 7)])
    with (
        read.clients.observing(ConsumerReadings("me", "g", measures, lambda: lags)),
        read.clients.observing(alone),
        read.clients.observing(alone._replace(lags=lambda: [(TopicPartition("t", 9), 5)])),
    ):
        assert read.values("consumer.lag") == {"3": 30, "2": 20, "9": 7}
        assert read.values("consumer.rebalances") == {"g": 2}
        assert read.values("consumer.rebalance.time") == {"g": 1.5}
    assert read.values("consumer.lag") == {}
