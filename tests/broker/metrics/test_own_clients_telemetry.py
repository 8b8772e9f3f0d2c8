"""Our own clients push metrics to a whole broker (KIP-714), beside librdkafka, with equal
values."""

from collections.abc import Callable
from uuid import UUID

import confluent_kafka
import trio

from ottla.broker.broker_driver import Broker
from ottla.client import (
    ConfigKind,
    ConfigResource,
    ConsumerConfig,
    ProducerConfig,
    TopicPartition,
    aio,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.telemetry.push_session import UNSUBSCRIBED_INTERVAL_MS
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.model.ids import NodeId, uuid_text
from ottla.telemetry.clients.instances import ClientInstance
from tests.client.telemetry.test_metric_points import STANDARD_OF_CONSUMERS, STANDARD_OF_PRODUCERS

TIMEOUT_S = 60
SCRAPED = {"metrics.prometheus.port": "0", "metrics.prometheus.host": "127.0.0.1"}
RECORDS = 300


def broker_of(cluster: ClusterUnderTest) -> Broker:
    broker = cluster.brokers[NodeId(1)]
    assert isinstance(broker, Broker)
    return broker


async def subscribe(bootstrap: str, metrics: str = "*", interval_ms: int = 300) -> None:
    async with open_admin(bootstrap) as admin:
        await admin.alter_configs(
            ConfigResource(ConfigKind.CLIENT_METRICS, "all"),
            {"metrics": metrics, "interval.ms": str(interval_ms)},
        )


async def eventually(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(TIMEOUT_S):
        while not is_so():
            await trio.sleep(0.02)


def pushed(broker: Broker, client_id: str) -> ClientInstance | None:
    found = [one for one in broker.telemetry.instances if one.traits.client_id == client_id]
    return next((one for one in found if one.export_count >= 2), None)


def values(broker: Broker, client_id: str) -> dict[str, float]:
    """Return the values of a client at /metrics, summed over labels."""
    found: dict[str, float] = {}
    for row in broker.telemetry.series.rows():
        if f'client_id="{client_id}"' in row.labels:
            found[row.family] = found.get(row.family, 0.0) + float(row.value)
    return found


def families(prefix: str, names: set[str]) -> set[str]:
    return {f"org_apache_kafka_{prefix}_{name}".replace(".", "_") for name in names}


async def test_our_producer_reports_what_librdkafka_does_for_the_same_work() -> None:
    async with open_test_cluster(settings=SCRAPED) as cluster:
        broker = broker_of(cluster)
        await subscribe(cluster.bootstrap)
        theirs = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap, "client.id": "theirs"}
        )
        for _ in range(RECORDS):
            theirs.produce("t", b"x" * 100)
        await trio.to_thread.run_sync(theirs.flush, TIMEOUT_S)
        config = ProducerConfig(client_id="ours")
        async with open_producer(cluster.bootstrap, config) as ours:
            for _ in range(RECORDS):
                await ours.send("t", b"x" * 100)
            await ours.flush()
            instance_id = await ours.client_instance_id(TIMEOUT_S)
            await eventually(lambda: bool(pushed(broker, "ours") and pushed(broker, "theirs")))
            await eventually(lambda: not broker.telemetry.ingest.counts()["pending"])
            instance = pushed(broker, "ours")
            assert instance is not None
            assert instance.id == instance_id
            assert (instance.error_count, instance.throttle_count) == (0, 0)
            rows = {row.family: row for row in broker.telemetry.series.rows()
                    if 'client_id="ours"' in row.labels}  # fmt: skip
            assert families("producer", STANDARD_OF_PRODUCERS) <= rows.keys()
            assert values(broker, "theirs").keys() <= rows.keys(), "all that librdkafka has"
            label = f'client_instance_id="{uuid_text(instance_id)}"'
            assert all(label in row.labels for row in rows.values())
            mine = values(broker, "ours")
            assert mine["org_apache_kafka_producer_record_send_total"] == RECORDS
            assert mine["org_apache_kafka_producer_connection_creation_total"] == 2
        await eventually(lambda: not values(broker, "ours"))
        await trio.to_thread.run_sync(theirs.close, TIMEOUT_S)


async def test_our_consumer_reports_as_a_member_of_its_group() -> None:
    async with open_test_cluster(settings=SCRAPED) as cluster:
        broker = broker_of(cluster)
        await subscribe(cluster.bootstrap)
        async with open_producer(cluster.bootstrap) as producer:
            for _ in range(RECORDS):
                await producer.send("t", b"x" * 100)
        for protocol in ("classic", "consumer"):
            config = ConsumerConfig(
                client_id=protocol,
                group_id=f"g-{protocol}",
                group_protocol=protocol,
                auto_offset_reset="earliest",
            )
            async with open_consumer(cluster.bootstrap, config) as consumer:
                consumer.subscribe(["t"])
                read = 0
                with trio.fail_after(TIMEOUT_S):
                    while read < RECORDS:
                        read += len(await consumer.poll())
                await consumer.commit()
                with trio.move_on_after(TIMEOUT_S):
                    while pushed(broker, protocol) is None:
                        await consumer.poll(0.05)
                await eventually(lambda: not broker.telemetry.ingest.counts()["pending"])
                found = values(broker, protocol)
                assert families("consumer", STANDARD_OF_CONSUMERS) <= found.keys()
                prefix = "org_apache_kafka_consumer_"
                assert found[f"{prefix}coordinator_assigned_partitions"] == 1
                assert found[f"{prefix}fetch_manager_records_lag_max"] == 0
                assert found[f"{prefix}coordinator_rebalance_latency_total"] > 0
                assert 0 < found[f"{prefix}poll_idle_ratio_avg"] <= 1
                labels = next(row.labels for row in broker.telemetry.series.rows()
                              if f'client_id="{protocol}"' in row.labels)  # fmt: skip
                assert f'group_id="g-{protocol}"' in labels
                assert 'group_member_id="' in labels


async def test_an_admin_reports_only_where_it_is_asked_to() -> None:
    async with open_test_cluster(settings=SCRAPED) as cluster:
        broker = broker_of(cluster)
        await subscribe(cluster.bootstrap)
        async with open_admin(cluster.bootstrap, client_id="quiet") as admin:
            await admin.create_topic("t")
        async with open_admin(
            cluster.bootstrap, client_id="loud", enable_metrics_push=True
        ) as admin:
            assert isinstance(await admin.client_instance_id(TIMEOUT_S), UUID)
            await eventually(lambda: pushed(broker, "loud") is not None)
            ids = {one.traits.client_id for one in broker.telemetry.instances}
            assert ids == {"loud"}
            await eventually(
                lambda: (
                    "org_apache_kafka_admin_client_connection_creation_total"
                    in values(broker, "loud")
                )
            )


async def test_a_client_notices_that_the_cluster_wants_metrics_now() -> None:
    async with open_test_cluster(settings=SCRAPED) as cluster:
        broker = broker_of(cluster)
        async with open_producer(cluster.bootstrap, ProducerConfig(client_id="old")) as producer:
            await producer.send("t", b"x")
            await producer.flush()
            assert not len(broker.telemetry.instances)
            await subscribe(cluster.bootstrap, interval_ms=1_000)
            await cluster.advance(UNSUBSCRIBED_INTERVAL_MS / 1_000)
            await eventually(lambda: pushed(broker, "old") is not None)


async def test_the_terminating_push_is_the_last_of_a_client() -> None:
    async with open_test_cluster(settings=SCRAPED) as cluster:
        broker = broker_of(cluster)
        await subscribe(cluster.bootstrap, interval_ms=60_000)
        async with open_consumer(cluster.bootstrap, ConsumerConfig(client_id="ours")) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            await consumer.client_instance_id(TIMEOUT_S)
            accepted = broker.telemetry.instances.counts.accepted
        assert broker.telemetry.instances.counts.accepted == accepted + 1


def test_clients_for_asyncio_report_too() -> None:
    async def work(bootstrap: str) -> UUID:
        async with aio.open_producer(bootstrap) as producer:
            await producer.send("t", b"x")
            return await producer.client_instance_id(TIMEOUT_S)

    async def main() -> None:
        import asyncio

        async with open_test_cluster(settings=SCRAPED) as cluster:
            await subscribe(cluster.bootstrap)
            found = await trio.to_thread.run_sync(asyncio.run, work(cluster.bootstrap))
            assert isinstance(found, UUID)

    trio.run(main)
