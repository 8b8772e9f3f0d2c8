"""The points that a subscription requests, deltas of sums, and their OTLP."""

from collections.abc import Sequence

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Metric,
    MetricsData,
)

from ottla.client.telemetry.client_metrics import ClientKind, ClientMetrics
from ottla.client.telemetry.consumer_metrics import LAG_PARTITIONS_MAX, ConsumerMetrics
from ottla.client.telemetry.measures import (
    ConnectionMeasures,
    CoordinatorMeasures,
    FetchMeasures,
    MeasuredValues,
    PollIdleTime,
    ProduceMeasures,
)
from ottla.client.telemetry.metric_points import AcceptedSums, DatedPoint, gauge, is_wanted, total
from ottla.client.telemetry.otlp_payload import payload_of
from ottla.client.telemetry.producer_metrics import ProducerMetrics
from ottla.model.ids import TopicPartition
from ottla.telemetry.clients.unpack import unpack
from ottla.wire.compression import Codec

STANDARD_OF_PRODUCERS = {
    "connection.creation.rate",
    "connection.creation.total",
    "node.request.latency.avg",
    "node.request.latency.max",
    "produce.throttle.time.avg",
    "produce.throttle.time.max",
    "record.queue.time.avg",
    "record.queue.time.max",
}
STANDARD_OF_CONSUMERS = {
    "connection.creation.rate",
    "connection.creation.total",
    "node.request.latency.avg",
    "node.request.latency.max",
    "poll.idle.ratio.avg",
    "coordinator.commit.latency.avg",
    "coordinator.commit.latency.max",
    "coordinator.assigned.partitions",
    "coordinator.rebalance.latency.avg",
    "coordinator.rebalance.latency.max",
    "coordinator.rebalance.latency.total",
    "fetch.manager.fetch.latency.avg",
    "fetch.manager.fetch.latency.max",
}
"""KIP-714's tables of standard metrics, without `org.apache.kafka.producer.` and `….consumer.`."""


@pytest.mark.parametrize(
    ("prefixes", "is_asked_for"),
    [
        (["*"], True),
        ([""], True),
        (["org.apache.kafka.producer."], True),
        (["x", "org.apache"], True),
        (["org.apache.kafka.consumer."], False),
        (["*", "x"], False),
        ([], False),
    ],
)
def test_a_subscription_chooses_by_prefixes(prefixes: list[str], is_asked_for: bool) -> None:
    assert is_wanted("org.apache.kafka.producer.record.queue.time.avg", prefixes) is is_asked_for


def consumer_metrics(
    lags: Sequence[tuple[TopicPartition, int]] = (), idle: PollIdleTime | None = None
) -> ConsumerMetrics:
    coordinator = CoordinatorMeasures()
    coordinator.commits_s.note(0.25)
    coordinator.note_rebalance(1.5)
    return ConsumerMetrics(
        fetches=FetchMeasures(),
        idle=idle or PollIdleTime(0.0),
        coordinator=coordinator,
        lags=lambda: lags,
        assigned_count=lambda: 3,
        now_s=lambda: 10.0,
    )


def test_every_standard_metric_of_the_kip_is_there() -> None:
    connections = ConnectionMeasures()
    connections.note_connection("a:1").note(0.5)
    producer = ProducerMetrics(ProduceMeasures(), buffer_bytes_max=100, buffered_bytes=lambda: 40)
    for kind, own, standard in (
        (ClientKind.PRODUCER, producer, STANDARD_OF_PRODUCERS),
        (ClientKind.CONSUMER, consumer_metrics(), STANDARD_OF_CONSUMERS),
    ):
        common = ClientMetrics(kind, connections, lambda _: 1)
        points = [*common.points(10.0), *own.points(10.0)]
        assert {kind.value + name for name in standard} <= {point.name for point in points}
        assert all(point.name.startswith(kind.value) for point in points)


def test_latencies_are_of_brokers_and_rates_of_the_time_since_the_last_look() -> None:
    connections = ConnectionMeasures()
    connections.note_connection("a:1").note(0.5)
    connections.note_connection("a:1").note(1.5)
    connections.note_connection("b:1")
    node_of = {"a:1": 7}.get
    metrics = ClientMetrics(ClientKind.ADMIN, connections, node_of)
    found = {(one.name.removeprefix("org.apache.kafka.admin.client."), one.labels): one.value
             for one in metrics.points(6.0)}  # fmt: skip
    assert found == {
        ("connection.creation.rate", ()): 0.5,
        ("connection.creation.total", ()): 3,
        ("request.latency.avg", ()): 1_000.0,
        ("request.latency.max", ()): 1_500.0,
        ("node.request.latency.avg", (("node_id", "7"),)): 1_000.0,
        ("node.request.latency.max", (("node_id", "7"),)): 1_500.0,
        ("node.request.latency.avg", (("node_id", "-1"),)): 0.0,
        ("node.request.latency.max", (("node_id", "-1"),)): 0.0,
    }
    again = [one.value for one in metrics.points(6.0) if one.name.endswith("creation.rate")]
    assert again == [0.0]


def test_values_are_of_the_time_since_they_were_taken() -> None:
    values = MeasuredValues()
    values.note(2)
    values.note(4)
    assert values.take(10) == (30, 40)
    assert values.take() == (0, 0)


def test_a_poll_that_waits_now_counts_as_idle() -> None:
    idle = PollIdleTime(0.0)
    idle.begin(5.0)
    assert idle.take(10.0) == 0.5
    idle.end(15.0)
    assert idle.take(20.0) == 0.5
    assert idle.take(20.0) == 0.0


def test_the_largest_lags_are_reported_and_no_more_than_fit() -> None:
    lags = [(TopicPartition("t", at), at) for at in range(LAG_PARTITIONS_MAX + 7)]
    points = list(consumer_metrics(lags).points(1.0))
    found = [one for one in points if one.name.endswith("records.lag")]
    assert len(found) == LAG_PARTITIONS_MAX
    assert min(one.value for one in found) == 7
    (most,) = [one for one in points if one.name.endswith("records.lag.max")]
    assert most.value == LAG_PARTITIONS_MAX + 6


def test_deltas_begin_where_the_last_accepted_push_ended() -> None:
    sums = AcceptedSums(start_ns=100)
    first = sums.read([total("a", 5)], is_delta=True, now_ns=200)
    assert first == [DatedPoint(total("a", 5), 100)]
    # Not settled: it was refused.
    again = sums.read([total("a", 7), gauge("b", 1)], is_delta=True, now_ns=300)
    assert again == [DatedPoint(total("a", 7), 100), DatedPoint(gauge("b", 1), 100)]
    sums.settle()
    assert sums.read([total("a", 9)], is_delta=True, now_ns=400) == [DatedPoint(total("a", 2), 300)]
    assert sums.read([total("a", 9)], is_delta=False, now_ns=400) == [
        DatedPoint(total("a", 9), 100)
    ]
    sums.reset()
    assert sums.read([total("a", 9)], is_delta=True, now_ns=500) == [DatedPoint(total("a", 9), 100)]


def decoded(payload: bytes, codec: Codec = Codec.NONE) -> MetricsData:
    return MetricsData.FromString(unpack(payload, codec))


def metrics_in(data: MetricsData) -> list[Metric]:
    return list(data.resource_metrics[0].scope_metrics[0].metrics)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("is_delta", [False, True])
def test_a_payload_is_otlp_in_each_compression(codec: Codec, is_delta: bool) -> None:
    points = [
        DatedPoint(total("sum", 3), 10),
        DatedPoint(gauge("latency", 1.5, (("node_id", "1"),)), 10),
        DatedPoint(gauge("latency", 2.5, (("node_id", "2"),)), 10),
    ]
    payload = payload_of(
        points, {"group_id": "g"}, is_delta=is_delta, now_ns=20, codec=codec, bytes_max=10_000
    )
    data = decoded(payload, codec)
    (attribute,) = data.resource_metrics[0].resource.attributes
    assert (attribute.key, attribute.value.string_value) == ("group_id", "g")
    first, second = metrics_in(data)
    assert first.sum.is_monotonic
    assert first.sum.aggregation_temporality == (
        AGGREGATION_TEMPORALITY_DELTA if is_delta else AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    (point,) = first.sum.data_points
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (3, 10, 20)
    assert [one.as_double for one in second.gauge.data_points] == [1.5, 2.5]


def test_a_payload_that_is_too_large_loses_what_has_labels_and_then_all() -> None:
    points = [DatedPoint(total("sum", 3), 10)]
    points += [DatedPoint(gauge("lag", at, (("partition", str(at)),)), 10) for at in range(100)]

    def names(bytes_max: int) -> list[str]:
        payload = payload_of(
            points, {}, is_delta=True, now_ns=20, codec=Codec.NONE, bytes_max=bytes_max
        )
        assert len(payload) <= bytes_max
        return [metric.name for metric in metrics_in(decoded(payload))] if payload else []

    assert names(100_000) == ["sum", "lag"]
    assert names(200) == ["sum"]
    assert names(5) == []


def test_a_producers_averages_are_of_the_time_since_the_last_look() -> None:
    measures = ProduceMeasures()
    metrics = ProducerMetrics(measures, buffer_bytes_max=100, buffered_bytes=lambda: 140)

    def found() -> dict[str, float]:
        prefix = ClientKind.PRODUCER.value
        return {one.name.removeprefix(prefix): one.value for one in metrics.points(1.0)}

    for queued_ms in (10, 30):
        measures.queue_times_ms.note(queued_ms)
        measures.batch_bytes += 500
        measures.record_count += 8
    measures.request_count = 4
    measures.throttle_times_ms.note(100)
    first = found()
    assert (first["record.queue.time.avg"], first["record.queue.time.max"]) == (20, 30)
    assert (first["batch.size.avg"], first["records.per.request.avg"]) == (500, 4)
    assert (first["produce.throttle.time.avg"], first["produce.throttle.time.max"]) == (25, 100)
    assert (first["record.send.total"], first["buffer.available.bytes"]) == (16, 0)
    second = found()
    assert (second["record.queue.time.avg"], second["batch.size.avg"]) == (0, 0)
    assert (second["produce.throttle.time.avg"], second["records.per.request.avg"]) == (0, 0)
    assert second["record.send.total"] == 16
