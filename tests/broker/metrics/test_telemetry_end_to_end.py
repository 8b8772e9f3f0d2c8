"""Clients push metrics to a whole broker: unmodified ones, and ours with invalid pushes."""

import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import confluent_kafka
import pytest
import trio
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.broker_driver import Broker
from ottla.client import ConfigKind, ConfigResource, open_admin
from ottla.client.network.connection import BrokerConnection, open_connection
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, NodeId, uuid_text
from ottla.model.limits import MIB
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.telemetry.clients.instances import ClientInstance
from ottla.wire.compression import Codec, compress
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse

TIMEOUT_S = 60
OFFERED = {"client.telemetry": "on"}
SCRAPED = {"metrics.prometheus.port": "0", "metrics.prometheus.host": "127.0.0.1"}


def broker_of(cluster: ClusterUnderTest) -> Broker:
    broker = cluster.brokers[NodeId(1)]
    assert isinstance(broker, Broker)
    return broker


async def subscribe(bootstrap: str, **settings: str | None) -> None:
    async with open_admin(bootstrap) as admin:
        await admin.alter_configs(
            ConfigResource(ConfigKind.CLIENT_METRICS, "all"),
            {key.replace("_", "."): value for key, value in settings.items()},
        )


@asynccontextmanager
async def connected(cluster: ClusterUnderTest) -> AsyncIterator[BrokerConnection]:
    ((host, port),) = parse_bootstrap(cluster.bootstrap)
    async with open_connection(host, port, client_id="ours") as connection:
        yield connection


async def get(connection: BrokerConnection, **fields: Any) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(**fields)
    return await connection.request(request, GetTelemetrySubscriptionsResponse)


async def push(connection: BrokerConnection, **fields: Any) -> PushTelemetryResponse:
    return await connection.request(PushTelemetryRequest(**fields), PushTelemetryResponse)


async def scraped(broker: Broker) -> dict[str, float]:
    """Return the numbers without labels that Prometheus finds (counters are called _total)."""
    url = f"http://127.0.0.1:{broker.metrics_port}/metrics"

    def scrape() -> str:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            text: bytes = answer.read()
            return text.decode()

    text = await trio.to_thread.run_sync(scrape)
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }


async def eventually(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(TIMEOUT_S):
        while not is_so():
            await trio.sleep(0.02)


async def test_an_unmodified_producer_asks_and_then_pushes_its_metrics() -> None:
    async with open_test_cluster(settings=SCRAPED) as cluster:
        broker = broker_of(cluster)
        await subscribe(cluster.bootstrap, metrics="*", interval_ms="1000")
        found: list[ClientInstance] = []

        def has_pushed() -> bool:
            found[:] = [one for one in broker.telemetry.instances if one.export_count >= 2]
            return bool(found)

        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap, "client.id": "shop"}
        )
        producer.produce("t", b"x" * 1_000)
        await trio.to_thread.run_sync(producer.flush, 60)
        await eventually(has_pushed)
        (instance,) = found
        assert instance.traits.client_id == "shop"
        assert instance.traits.software_name == "confluent-kafka-python"
        assert instance.push_bytes > 0
        assert instance.error_count == 0
        assert broker.telemetry.instances.counts.throttled == 0
        await eventually(lambda: not broker.telemetry.ingest.counts()["pending"])
        rows = {row.family: row for row in broker.telemetry.series.rows()}
        assert len(rows) >= 5
        created = rows["org_apache_kafka_producer_connection_creation_total"]
        assert created.kind == "counter"
        for label in (
            f'client_instance_id="{uuid_text(instance.id)}"',
            'client_id="shop"',
            'principal="User:ANONYMOUS"',
            'client_software_name="confluent-kafka-python"',
            'client_source_address="127.0.0.1"',
            'broker_id="1"',
        ):
            assert label in created.labels
        await trio.to_thread.run_sync(producer.close, 60)
        del producer
        await eventually(lambda: not len(broker.telemetry.instances))
        assert list(broker.telemetry.series.rows()) == []


async def test_an_unmodified_producer_follows_a_subscription_change_without_throttles() -> None:
    async with open_test_cluster(settings=SCRAPED) as cluster:
        telemetry = broker_of(cluster).telemetry

        def families() -> set[str]:
            return {row.family for row in telemetry.series.rows()}

        await subscribe(cluster.bootstrap, metrics="*", interval_ms="500")
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        await eventually(lambda: len(families()) >= 5)
        await subscribe(cluster.bootstrap, metrics="org.apache.kafka.producer.connection.")
        wanted = {
            "org_apache_kafka_producer_connection_creation_rate",
            "org_apache_kafka_producer_connection_creation_total",
        }
        await eventually(lambda: families() == wanted)
        assert telemetry.instances.counts.unknown_subscriptions == 1
        assert telemetry.instances.counts.throttled == 0
        await trio.to_thread.run_sync(producer.close, 60)


async def test_an_unmodified_producer_gets_an_interval_that_it_can_keep() -> None:
    async with open_test_cluster() as cluster:
        instances = broker_of(cluster).telemetry.instances
        await subscribe(cluster.bootstrap, metrics="*", interval_ms="3600000")
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        await eventually(lambda: len(instances) == 1)
        # After an answer of one hour, it asks at once, again and again.
        await trio.sleep(0.3)
        assert instances.counts.throttled == 0
        assert [one.effective.interval_ms for one in instances] == [1_500_000]
        await trio.to_thread.run_sync(producer.close, 60)


async def test_the_telemetry_of_a_client_that_is_killed_goes_away() -> None:
    async with open_test_cluster(settings=SCRAPED) as cluster:
        telemetry = broker_of(cluster).telemetry
        await subscribe(cluster.bootstrap, metrics="*", interval_ms="500")
        script = (
            "import confluent_kafka, sys, time\n"
            "producer = confluent_kafka.Producer({'bootstrap.servers': sys.argv[1]})\n"
            "time.sleep(300)\n"
        )
        client = subprocess.Popen([sys.executable, "-c", script, cluster.bootstrap])
        try:
            await eventually(lambda: any(True for _ in telemetry.series.rows()))
        finally:
            client.kill()
            client.wait()
        await eventually(lambda: not len(telemetry.instances))
        assert list(telemetry.series.rows()) == []


async def test_a_subscription_that_is_set_changed_or_deleted_holds_from_the_next_request_on() -> (
    None
):
    async with open_test_cluster(settings=OFFERED) as cluster, connected(cluster) as connection:
        before = await get(connection)
        assert (before.requested_metrics, before.push_interval_ms) == ([], 300_000)
        me = {"client_instance_id": before.client_instance_id}
        await subscribe(cluster.bootstrap, metrics="org.a.", interval_ms="60000")
        refused = await push(connection, subscription_id=before.subscription_id, **me)
        assert refused.error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        found = await get(connection, **me)
        assert (found.error_code, found.requested_metrics) == (0, ["org.a."])
        await subscribe(cluster.bootstrap, metrics="*")
        assert (await get(connection, **me)).requested_metrics == ["*"]
        await subscribe(cluster.bootstrap, metrics=None, interval_ms=None)
        after = await get(connection, **me)
        assert after.subscription_id == before.subscription_id


async def test_a_client_that_disconnects_is_forgotten() -> None:
    async with open_test_cluster(settings=OFFERED) as cluster:
        instances = broker_of(cluster).telemetry.instances
        async with connected(cluster) as connection:
            await get(connection)
            assert [one.traits.software_name for one in instances] == ["ottla"]
        await eventually(lambda: not len(instances))


@pytest.mark.parametrize(
    ("settings", "is_offered"),
    [
        ({}, False),
        (OFFERED, True),
        ({"client.telemetry": "off", "telemetry.topic": "true"}, False),
        ({"telemetry.topic": "true"}, True),
        (SCRAPED, False),
    ],
)
async def test_telemetry_is_offered_only_where_an_exporter_uses_it(
    settings: dict[str, str], is_offered: bool
) -> None:
    async with open_test_cluster(settings=settings) as cluster:
        assert await lists_telemetry(cluster) is is_offered


async def test_clients_are_offered_to_report_from_their_next_connection_on() -> None:
    async with open_test_cluster() as cluster:
        async with connected(cluster) as before:
            await subscribe(cluster.bootstrap, metrics="*", interval_ms="60000")
            assert await lists_telemetry(cluster)
            assert not {71, 72} & before._spoken.api_keys
        await subscribe(cluster.bootstrap, metrics=None, interval_ms=None)
        assert not await lists_telemetry(cluster)


async def lists_telemetry(cluster: ClusterUnderTest) -> bool:
    async with connected(cluster) as connection:
        return {71, 72} <= connection._spoken.api_keys


async def test_an_unmodified_client_prints_nothing_where_its_metrics_are_unwanted() -> None:
    script = (
        "import confluent_kafka, sys\n"
        "producer = confluent_kafka.Producer({'bootstrap.servers': sys.argv[1]})\n"
        "producer.produce('t', b'x')\n"
        "producer.flush(30)\n"
        "producer.close(30)\n"
    )
    async with open_test_cluster() as cluster:
        command = [sys.executable, "-c", script, cluster.bootstrap]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True)
        assert (done.stdout, done.stderr) == (b"", b"")


async def test_a_client_of_which_nothing_is_wanted_asks_again_as_often_as_the_broker_says() -> None:
    settings = {**OFFERED, "telemetry.unsubscribed.interval.ms": "10000"}
    async with open_test_cluster(settings=settings) as cluster, connected(cluster) as connection:
        assert (await get(connection)).push_interval_ms == 10_000


async def test_the_bound_on_a_push_is_the_brokers_setting() -> None:
    async with (
        open_test_cluster(settings={**OFFERED, "telemetry.max.bytes": "100"}) as cluster,
        connected(cluster) as connection,
    ):
        got = await get(connection)
        assert got.telemetry_max_bytes == 100
        refused = await push(
            connection,
            client_instance_id=got.client_instance_id,
            subscription_id=got.subscription_id,
            metrics=bytes(101),
        )
        assert refused.error_code == ErrorCode.TELEMETRY_TOO_LARGE


def metrics_data(name: str, value: int) -> bytes:
    """Return the OTLP of a push of one counter."""
    point = NumberDataPoint(as_int=value, time_unix_nano=2, start_time_unix_nano=1)
    counter = Sum(
        data_points=[point],
        aggregation_temporality=AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA,
        is_monotonic=True,
    )
    metrics = [Metric(name=name, sum=counter)]
    scopes = [ScopeMetrics(metrics=metrics)]
    return MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=scopes)]).SerializeToString()


SENT = 41
GOOD = metrics_data("org.apache.kafka.producer.record.send.total", SENT)


class TurnedClock:
    """The brokers' time, some of it turned by the test."""

    def __init__(self) -> None:
        self.turned_ms = 0

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1_000) + self.turned_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()


async def test_each_bad_push_gets_its_own_error_and_the_connection_lives() -> None:
    clock = TurnedClock()
    bomb = compress(Codec.GZIP, bytes(64 * MIB))
    cases: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"metrics": b""}, ErrorCode.NONE),
        ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(MIB + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": bomb, "compression_type": Codec.GZIP}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\xff nonsense"}, ErrorCode.INVALID_RECORD),
        ({"metrics": GOOD, "compression_type": Codec.ZSTD}, ErrorCode.INVALID_RECORD),
        *(
            ({"metrics": compress(codec, GOOD), "compression_type": codec}, ErrorCode.NONE)
            for codec in Codec
        ),
        ({"terminating": True}, ErrorCode.NONE),
        ({}, ErrorCode.INVALID_REQUEST),
    ]
    async with (
        open_test_cluster(clock=clock, settings={**SCRAPED, **OFFERED}) as cluster,
        connected(cluster) as connection,
    ):
        # No client keeps an interval so long by itself: it is the test that turns the clock.
        await subscribe(cluster.bootstrap, metrics="*", interval_ms="3600000")
        got = await get(connection)
        good = {
            "client_instance_id": got.client_instance_id,
            "subscription_id": got.subscription_id,
            "metrics": GOOD,
        }
        for changes, code in cases:
            clock.turned_ms += 3_600_000
            answer = await push(connection, **{**good, **changes})
            assert ErrorCode(answer.error_code) is code, changes
            assert answer.throttle_time_ms == 0
            if code in (ErrorCode.NONE, ErrorCode.INVALID_RECORD) and "metrics" in changes:
                early = await push(connection, **{**good, **changes})
                assert early.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
                assert early.throttle_time_ms == 1_000
        telemetry = broker_of(cluster).telemetry
        await eventually(lambda: not telemetry.ingest.counts()["pending"])
        (row,) = telemetry.series.rows()
        # Each codec once, and the last push.
        assert (row.family, row.value) == (
            "org_apache_kafka_producer_record_send_total",
            (len(Codec) + 1) * SENT,
        )
        metrics = await scraped(broker_of(cluster))
        assert metrics["kafka_server_client_metrics_instance_count"] == 1
        assert metrics["kafka_server_client_metrics_unknown_subscription_request_count_total"] == 1
        assert metrics["kafka_server_client_metrics_throttle_count_total"] == 8
        assert metrics["kafka_server_client_metrics_plugin_export_count_total"] == len(Codec) + 1
        assert metrics["kafka_server_client_metrics_plugin_error_count_total"] == 3
