"""An unmodified producer's metrics leave a whole broker by every way, and all say the same."""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.request import urlopen

import confluent_kafka
import trio
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.broker_driver import Broker
from ottla.client import ConfigKind, ConfigResource, TopicPartition, open_admin, open_consumer
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.model.ids import NodeId
from ottla.telemetry.client_record import decode_record
from ottla.telemetry.otlp import Point

TIMEOUT_S = 90
TOPIC = TopicPartition("__client_metrics", 0)
CONNECTIONS = "org.apache.kafka.producer.connection.creation.total"
LATENCY = "org.apache.kafka.producer.node.request.latency.max"


async def test_collectors_topic_and_prometheus_say_the_same(collectors: Sequence[Any]) -> None:
    settings = {
        "telemetry.otlp.endpoint": ",".join(str(one.endpoint()) for one in collectors),
        "telemetry.topic": "true",
        "metrics.prometheus.port": "0",
        "metrics.prometheus.host": "127.0.0.1",
    }
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster(settings=settings) as cluster:
            broker = cluster.brokers[NodeId(1)]
            assert isinstance(broker, Broker)
            await subscribe(cluster)
            producer = confluent_kafka.Producer(
                {"bootstrap.servers": cluster.bootstrap, "client.id": "shop"}
            )
            for _ in range(3):
                for _ in range(100):
                    producer.produce("orders", b"x" * 100)
                await trio.to_thread.run_sync(producer.flush, 30)
                await until_pushed_again(broker)
            connections = await scraped_connections(broker)
            await trio.to_thread.run_sync(producer.close, 30)  # pushes for a last time
            while len(broker.telemetry.instances):
                await trio.sleep(0.02)
            pushed = broker.telemetry.ingest.counts()["pushes"]
            while any(one.counts()["sent"] < pushed for one in broker.telemetry.exporters):
                await trio.sleep(0.02)
            in_topic = await topic_points(cluster, pushed)
            assert await scraped_connections(broker) is None, "it took its series along"

    assert connections is not None
    assert connections >= 1
    ways = [*(one.points() for one in collectors), in_topic]
    for points in ways:
        assert len(points) == len(in_topic) > 0
        assert total_of(points) >= connections
        assert max(point.value for point in points if point.name == LATENCY) > 0
    assert len({total_of(points) for points in ways}) == 1
    assert set(in_topic) == set(ways[0]) == set(ways[1])


async def subscribe(cluster: ClusterUnderTest) -> None:
    async with open_admin(cluster.bootstrap) as admin:
        await admin.alter_configs(
            ConfigResource(ConfigKind.CLIENT_METRICS, "all"),
            {"metrics": "*", "interval.ms": "500"},
        )


async def until_pushed_again(broker: Broker) -> None:
    before = broker.telemetry.ingest.counts()["pushes"]
    while broker.telemetry.ingest.counts()["pushes"] == before:
        await trio.sleep(0.02)


async def scraped_connections(broker: Broker) -> float | None:
    """Return what Prometheus reads of the client's connections; None when it reads nothing."""

    def scrape() -> str:
        with urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics") as response:
            text: str = response.read().decode()
            return text

    for family in text_string_to_metric_families(await trio.to_thread.run_sync(scrape)):
        for sample in family.samples:
            if sample.name == CONNECTIONS.replace(".", "_"):
                assert sample.labels["client_id"] == "shop"
                return float(sample.value)
    return None


async def topic_points(cluster: ClusterUnderTest, record_count: int) -> list[Point]:
    found: list[Point] = []
    async with open_consumer(cluster.bootstrap) as consumer:
        consumer.assign([TOPIC])
        consumer.seek(TOPIC, 0)
        async for record in consumer:
            assert record.value is not None
            found += decode_record(record.value)[2]
            record_count -= 1
            if record_count == 0:
                break
    return found


def total_of(points: Iterable[Any]) -> Any:
    return sum(point.value for point in points if point.name == CONNECTIONS)
