"""Spans and metrics of the client, with the SDK's own exporters in memory."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import metrics, trace
from opentelemetry.metrics._internal import _ProxyMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.util._once import Once

from ottla.client import (
    ConfigKind,
    ConfigResource,
    ConsumerConfig,
    ProducerConfig,
    ShareConsumerConfig,
    ShareRecord,
    open_admin,
    open_consumer,
    open_producer,
    open_share_consumer,
)
from ottla.client.instrumentation.instruments import LINKS_MAX, instruments
from ottla.client.producer import Producer
from ottla.client.testing import ClusterUnderTest
from ottla.model.errors import RefusedError


class ExportedTelemetry:
    """Spans that have ended, and metrics."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        trace.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider([self._reader]))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [one for one in self._exporter.get_finished_spans() if one.name == name]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found

    def points(self, name: str) -> list[object]:
        data = self._reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def values(self, name: str) -> dict[tuple[object, ...], float]:
        """Return the values of a metric, by the attributes besides `messaging.system`."""
        found: dict[tuple[object, ...], float] = {}
        for point in self.points(name):
            assert isinstance(point, NumberDataPoint)
            attributes = dict(point.attributes or {})
            assert attributes.pop("messaging.system") == "kafka"
            found[tuple(attributes.values())] = point.value
        return found


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExportedTelemetry]:
    """Providers of this test alone; the API lets a program set each of them only once."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", None)
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(
        "opentelemetry.metrics._internal._PROXY_METER_PROVIDER", _ProxyMeterProvider()
    )
    instruments.cache_clear()
    yield ExportedTelemetry()
    instruments.cache_clear()


EARLIEST = ConsumerConfig(group_id="billing", auto_offset_reset="earliest", client_id="reader")


async def test_a_record_is_one_trace_from_its_sender_to_its_processing(
    reported: ExportedTelemetry, ottla_cluster: ClusterUnderTest
) -> None:
    bootstrap = ottla_cluster.bootstrap
    async with open_producer(bootstrap, ProducerConfig(client_id="shop")) as producer:
        with trace.get_tracer("test").start_as_current_span("checkout") as checkout:
            at = await (await producer.send("orders", b"1", headers=[("a", b"b")]))
    async with open_consumer(bootstrap, EARLIEST) as consumer:
        consumer.subscribe(["orders"])
        with trio.fail_after(60):
            (record,) = await consumer.poll()
        with consumer.processing(record):
            inside = trace.get_current_span().get_span_context()

    sent, polled, processed = map(reported.span, ("send orders", "poll orders", "process orders"))
    assert [name for name, _ in record.headers] == ["a", "traceparent"]
    assert sent.kind is SpanKind.PRODUCER
    assert sent.parent == checkout.get_span_context()
    assert dict(sent.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "shop",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": str(at.partition),
        "messaging.kafka.offset": 0,
    }
    assert polled.kind is SpanKind.CLIENT
    assert [link.context.span_id for link in polled.links] == [sent.context.span_id]
    assert (polled.attributes or {})["messaging.batch.message_count"] == 1
    assert processed.kind is SpanKind.CONSUMER
    assert processed.context == inside
    assert processed.context.trace_id == sent.context.trace_id
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id
    assert dict(processed.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": "reader",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": str(at.partition),
        "messaging.kafka.offset": 0,
    }


async def test_a_request_is_a_child_of_its_first_record_and_has_links_to_the_others(
    reported: ExportedTelemetry, ottla_cluster: ClusterUnderTest
) -> None:
    config = ProducerConfig(client_id="shop", linger_ms=200)
    async with open_producer(ottla_cluster.bootstrap, config) as producer:
        await producer.partitions_of("orders")
        for number in range(LINKS_MAX + 3):
            await producer.send("orders", str(number).encode(), partition=0)
        await producer.flush()

    request = reported.span("Produce")
    first, *others = reported.spans("send orders")
    assert request.kind is SpanKind.CLIENT
    assert request.parent == first.context
    linked = [other.context.span_id for other in others[:LINKS_MAX]]
    assert [link.context.span_id for link in request.links] == linked
    attributes = dict(request.attributes or {})
    host, port = ottla_cluster.bootstrap.split(":")
    assert (attributes.pop("server.address"), attributes.pop("server.port")) == (host, int(port))
    assert attributes == {
        "rpc.system": "kafka",
        "rpc.method": "Produce",
        "messaging.system": "kafka",
        "messaging.client.id": "shop",
        "messaging.batch.message_count": LINKS_MAX + 3,
        "messaging.destination.name": "orders",
    }


async def test_a_request_without_an_answer_has_a_span(
    reported: ExportedTelemetry, ottla_cluster: ClusterUnderTest
) -> None:
    config = ProducerConfig(acks="0", enable_idempotence=False)
    async with open_producer(ottla_cluster.bootstrap, config) as producer:
        await (await producer.send("orders", b"x"))
    assert reported.span("Produce").parent == reported.span("send orders").context


async def test_records_that_are_not_recorded_make_no_span_of_their_request(
    reported: ExportedTelemetry, ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = trace.get_tracer_provider()
    monkeypatch.setattr(provider, "sampler", ALWAYS_OFF)
    instruments.cache_clear()
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await (await producer.send("orders", b"x"))
    assert reported.spans("Produce") == []


async def test_a_record_that_is_passed_on_gets_the_context_of_its_new_sender(
    reported: ExportedTelemetry, ottla_cluster: ClusterUnderTest
) -> None:
    old = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await (await producer.send("t", b"x", headers=old))
    async with open_consumer(ottla_cluster.bootstrap, EARLIEST) as consumer:
        consumer.subscribe(["t"])
        with trio.fail_after(60):
            (record,) = await consumer.poll()
    ((name, value),) = record.headers
    assert name == "traceparent"
    assert value is not None
    assert value.decode().split("-")[2] == f"{reported.span('send t').context.span_id:016x}"


async def test_metrics_count_what_was_sent_and_delivered(
    reported: ExportedTelemetry, ottla_cluster: ClusterUnderTest
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        for _ in range(3):
            await producer.send("t", b"x", partition=0)
    async with open_consumer(ottla_cluster.bootstrap, EARLIEST) as consumer:
        consumer.subscribe(["t"])
        read = 0
        with trio.fail_after(60):
            while read < 3:
                read += len(await consumer.poll())
    (sent,) = reported.points("messaging.client.sent.messages")
    (consumed,) = reported.points("messaging.client.consumed.messages")
    assert (getattr(sent, "value", 0), getattr(consumed, "value", 0)) == (3, 3)


async def test_open_clients_report_lag_buffers_rebalances_and_poll_intervals(
    reported: ExportedTelemetry, ottla_cluster: ClusterUnderTest
) -> None:
    config = ProducerConfig(client_id="shop", buffer_bytes_max=1_000_000, linger_ms=60_000)
    async with open_producer(ottla_cluster.bootstrap, config) as producer:
        for _ in range(3):
            await producer.send("orders", bytes(100))
        (usage,) = reported.values("messaging.kafka.producer.buffer.usage").values()
        assert 300 < usage < 1_000
        assert reported.values("messaging.kafka.producer.buffer.limit") == {("shop",): 1_000_000}
    assert reported.values("messaging.kafka.producer.buffer.usage") == {}
    assert reported.values("messaging.kafka.producer.retries") == {("shop",): 0}

    async with open_consumer(ottla_cluster.bootstrap, EARLIEST) as consumer:
        consumer.subscribe(["orders"])
        with trio.fail_after(60):
            for _ in range(2):
                (record,) = await consumer.poll(record_count_max=1)
        at = ("reader", "billing", "orders", str(record.partition))
        assert reported.values("messaging.kafka.consumer.lag") == {at: 1}
        (interval,) = reported.points("messaging.kafka.consumer.poll.interval")
        assert getattr(interval, "count", 0) == 1
    who = ("reader", "billing")
    assert reported.values("messaging.kafka.consumer.lag") == {}
    assert reported.values("messaging.kafka.consumer.rebalances") == {who: 1}
    assert reported.values("messaging.kafka.consumer.rebalance.time")[who] > 0


async def test_a_record_that_is_refused_ends_its_span_with_the_error(
    reported: ExportedTelemetry, ottla_cluster: ClusterUnderTest
) -> None:
    config = ProducerConfig(request_bytes_max=100)
    async with open_producer(ottla_cluster.bootstrap, config) as producer:
        with pytest.raises(RefusedError):
            await producer.send("t", bytes(1_000))
    sent = reported.span("send t")
    assert sent.status.status_code is StatusCode.ERROR
    assert (sent.attributes or {})["error.type"] == "MESSAGE_TOO_LARGE"


async def test_without_a_provider_the_clients_are_the_plain_ones(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        assert type(producer) is Producer


def test_a_program_that_does_not_use_opentelemetry_does_not_load_it() -> None:
    script = (
        "import sys, ottla.client.producer, ottla.client.consumer\n"
        "from ottla.client.instrumentation.detect import is_instrumented\n"
        "assert not is_instrumented()\n"
        "assert 'opentelemetry.trace' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


async def test_a_handler_of_a_queue_is_a_child_of_the_span_of_the_sender(
    reported: ExportedTelemetry, ottla_cluster: ClusterUnderTest
) -> None:
    bootstrap = ottla_cluster.bootstrap
    async with open_producer(bootstrap) as producer:
        await (await producer.send("mails", b"1"))
    async with open_admin(bootstrap) as admin:
        group = ConfigResource(ConfigKind.GROUP, "mail")
        await admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
    async with open_share_consumer(bootstrap, ShareConsumerConfig(group_id="mail")) as consumer:
        consumer.subscribe(["mails"])

        async def handle(record: ShareRecord) -> None:
            if record.delivery_count == 1:
                raise ValueError("not yet")
            consumer.stop()

        with trio.fail_after(60):
            await consumer.work(handle)
    sent, (first, second) = reported.span("send mails"), reported.spans("process mails")
    for processed in (first, second):
        assert processed.kind is SpanKind.CONSUMER
        assert processed.parent is not None
        assert processed.parent.span_id == sent.context.span_id
        assert (processed.attributes or {})["messaging.consumer.group.name"] == "mail"
    counts = [(one.attributes or {})["ottla.share.delivery_count"] for one in (first, second)]
    assert counts == [1, 2]
    assert first.status.status_code is StatusCode.ERROR
    assert second.status.status_code is not StatusCode.ERROR


async def test_a_poll_of_a_queue_is_a_span_with_links_to_the_senders(
    reported: ExportedTelemetry, ottla_cluster: ClusterUnderTest
) -> None:
    bootstrap = ottla_cluster.bootstrap
    async with open_producer(bootstrap) as producer:
        await producer.send_many("mails", [b"1", b"2"])
        await (await producer.send("mails", b"3", partition=0))
    async with open_admin(bootstrap) as admin:
        group = ConfigResource(ConfigKind.GROUP, "mail")
        await admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
    config = ShareConsumerConfig(group_id="mail", client_id="worker", fetch_wait_ms_max=100)
    async with open_share_consumer(bootstrap, config) as consumer:
        consumer.subscribe(["mails"])
        with trio.fail_after(60):
            polls = 0
            for wanted in (2, 1):
                while wanted:
                    records = await consumer.poll(record_count_max=wanted)
                    wanted -= len(records)
                    polls += 1
                    for record in records:
                        await record.accept()
            assert await consumer.poll(timeout_s=0.1) == []
    sent = {one.context.span_id for one in reported.spans("send mails")}
    polled = reported.spans("poll mails")
    assert len(polled) == polls, "a poll without records has no span"
    assert {link.context.span_id for one in polled for link in one.links} == sent
    for one in polled:
        assert one.kind is SpanKind.CLIENT
        attributes = one.attributes or {}
        assert attributes["messaging.consumer.group.name"] == "mail"
        assert attributes["messaging.client.id"] == "worker"
    found = reported.points("messaging.client.consumed.messages")
    assert sum(getattr(point, "value", 0) for point in found) == 3
