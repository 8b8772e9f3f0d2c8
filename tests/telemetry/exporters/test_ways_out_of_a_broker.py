"""An unmodified producer's metrics leave a whole broker by every exporter, with equal values."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.request import urlopen

import confluent_kafka
import trio
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.broker_driver import Broker
from ottla.client import (
    ConfigKind,
    ConfigResource,
    ConsumerConfig,
    TopicPartition,
    open_admin,
    open_consumer,
)
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.telemetry.clients.client_record import decode_record
from ottla.telemetry.clients.otlp import Point

TIMEOUT_S = 90
TOPIC = TopicPartition("__client_metrics", 0)
CONNECTIONS = "org.apache.kafka.producer.connection.creation.total"
LATENCY = "org.apache.kafka.producer.node.request.latency.max"


async def test_collectors_topic_and_prometheus_say_the_same(collectors: Sequence[Any]) -> None:
    settings = {
        "telemetry.otlp.endpoint": ",".join(str(one.endpoint()) for one in collectors),
        "telemetry.topic": "true",
        "metrics.prometheus.port": "0",
        "metrics.otlp.interval.ms": "0",  # only what clients push
        "metrics.prometheus.host": "127.0.0.1",
    }
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster(broker_count=2, settings=settings) as cluster:
            brokers = [one for one in cluster.brokers.values() if isinstance(one, Broker)]
            await trio.to_thread.run_sync(create_topics, cluster.bootstrap)
            await subscribe(cluster)
            near, _, _ = cluster.bootstrap.partition(",")
            producer = confluent_kafka.Producer({"bootstrap.servers": near, "client.id": "shop"})
            for topic in (
                "near",
                "far",
                "far",
            ):
                producer.produce(topic, b"x" * 100)
                await trio.to_thread.run_sync(producer.flush, 60)
                await until_pushed_again(brokers)
            connections = [await scraped_connections(broker) for broker in brokers]
            await trio.to_thread.run_sync(producer.close, 60)  # pushes for a last time
            while any(len(broker.telemetry.instances) for broker in brokers):
                await trio.sleep(0.02)
            for broker in brokers:
                pushed = broker.telemetry.ingest.counts()["pushes"]
                while any(one.counts()["sent"] < pushed for one in broker.telemetry.exporters):
                    await trio.sleep(0.02)
            in_topic = await topic_points(cluster, pushes_of(brokers))
            for broker in brokers:
                assert await scraped_connections(broker) == 0, "it took its series along"

    ways = [*(one.points() for one in collectors), in_topic]
    assert [total_of(points) for points in ways] == [sum(connections)] * 3
    for points in ways:
        assert max(point.value for point in points if point.name == LATENCY) > 0
    assert Counter(in_topic) == Counter(ways[0]) == Counter(ways[1])


def create_topics(bootstrap: str) -> None:
    """Create a topic on the broker that the client asks first, and one on the other."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "enable.metrics.push": False})
    topics = [
        NewTopic(name, 1, replica_assignment=[[broker_id]])
        for name, broker_id in (("near", 1), ("far", 2))
    ]
    for made in admin.create_topics(topics).values():
        made.result(60)


async def subscribe(cluster: ClusterUnderTest) -> None:
    async with open_admin(cluster.bootstrap) as admin:
        await admin.alter_configs(
            ConfigResource(ConfigKind.CLIENT_METRICS, "all"),
            {"metrics": "*", "interval.ms": "500"},
        )


def pushes_of(brokers: Iterable[Broker]) -> int:
    return sum(broker.telemetry.ingest.counts()["pushes"] for broker in brokers)


async def until_pushed_again(brokers: Sequence[Broker]) -> None:
    before = pushes_of(brokers)
    while pushes_of(brokers) == before:
        await trio.sleep(0.02)


async def scraped_connections(broker: Broker) -> float:
    """Return what Prometheus reads of the client's connections; 0 when it reads nothing."""

    def scrape() -> str:
        with urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics") as response:
            text: str = response.read().decode()
            return text

    for family in text_string_to_metric_families(await trio.to_thread.run_sync(scrape)):
        for sample in family.samples:
            if sample.name == CONNECTIONS.replace(".", "_"):
                assert sample.labels["client_id"] == "shop"
                return float(sample.value)
    return 0


async def topic_points(cluster: ClusterUnderTest, record_count: int) -> list[Point]:
    found: list[Point] = []
    # What it reports itself is not asked about.
    config = ConsumerConfig(enable_metrics_push=False)
    async with open_consumer(cluster.bootstrap, config) as consumer:
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
