"""Pushes of an unmodified client leave a broker through every configured exporter."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import confluent_kafka
import trio

from ottla.client import ConfigKind, ConfigResource, TopicPartition, open_admin, open_consumer
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.client_record import decode_record
from ottla.telemetry.clients.otlp import Point

Collector = Any  # the class of the fixture, in conftest.py

TIMEOUT_S = 60
TOPIC = TopicPartition("__client_metrics", 0)
CREATED = "org.apache.kafka.producer.connection.creation.total"


@asynccontextmanager
async def reporting(cluster: ClusterUnderTest) -> AsyncIterator[None]:
    """Let one producer, called shop, push everything every second."""
    async with open_admin(cluster.bootstrap) as admin:
        await admin.alter_configs(
            ConfigResource(ConfigKind.CLIENT_METRICS, "all"),
            {"metrics": "*", "interval.ms": "1000"},
        )
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "client.id": "shop"}
    )
    try:
        yield
    finally:
        await trio.to_thread.run_sync(producer.close, 60)


async def first_record(cluster: ClusterUnderTest) -> tuple[bytes | None, bytes | None]:
    """Return key and value of the topic's first record, once it exists."""
    async with open_admin(cluster.bootstrap) as admin:
        while TOPIC.topic not in await admin.list_topics():
            await trio.sleep(0.05)
    async with open_consumer(cluster.bootstrap) as consumer:
        consumer.assign([TOPIC])
        consumer.seek(TOPIC, 0)
        async for record in consumer:
            return record.key, record.value
    raise AssertionError


def check(labels: ClientLabels, points: list[Point]) -> None:
    assert labels.client_id == "shop"
    assert labels.software_name == "confluent-kafka-python"
    assert (labels.source_address, labels.broker_id) == ("127.0.0.1", 1)
    assert CREATED in {point.name for point in points}


async def test_a_push_becomes_a_record_of_the_topic_though_no_client_may_have_topics_made() -> None:
    settings = {"telemetry.topic": "true", "auto.create.topics.enable": "false"}
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster(settings=settings) as cluster, reporting(cluster):
            key, value = await first_record(cluster)
            assert value is not None
            labels, _, points = decode_record(value)
            check(labels, points)
            assert key == labels.client_instance_id.bytes


async def test_a_push_reaches_a_collector_by_otlp_and_the_topic_at_once(
    collector: Collector,
) -> None:
    settings = {"telemetry.topic": "true", "telemetry.otlp.endpoint": collector.endpoint}
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster(settings=settings) as cluster, reporting(cluster):
            _, value = await first_record(cluster)
            while not collector.metrics:
                await trio.sleep(0.02)
    assert value is not None
    (pushed, *_) = [
        resource
        for request in collector.metrics
        for resource in request.resource_metrics
        if any(one.key == "client_id" for one in resource.resource.attributes)
    ]
    attributes = {one.key: one.value.string_value for one in pushed.resource.attributes}
    assert attributes["client_id"] == "shop"
    assert attributes["principal"] == "User:ANONYMOUS"
    names = {metric.name for scope in pushed.scope_metrics for metric in scope.metrics}
    assert CREATED in names


async def test_a_controlled_stop_lets_what_clients_pushed_leave(collector: Collector) -> None:
    settings = {"telemetry.otlp.endpoint": collector.endpoint, "telemetry.linger.ms": "1500"}
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster(settings=settings) as cluster, reporting(cluster):
            broker = cluster.brokers[1]  # type: ignore[index]
            (exporter,) = broker.telemetry.exporters
            while not broker.telemetry.instances.counts.exported:
                await trio.sleep(0.02)
            assert exporter.counts()["sent"] == 0
            await broker.leave()
            counts = exporter.counts()
    assert counts["sent"] >= 1
    assert counts["sending"] == 0
    assert collector.metrics


async def test_a_collector_that_is_gone_slows_no_client(collector: Collector) -> None:
    endpoint = collector.endpoint
    collector.server.server_close()
    settings = {"telemetry.otlp.endpoint": endpoint}
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster(settings=settings) as cluster, reporting(cluster):
            telemetry = cluster.brokers[1].telemetry  # type: ignore[index]
            (exporter,) = telemetry.exporters
            while not (exporter.counts()["failures"] and telemetry.instances.counts.exported >= 2):
                await trio.sleep(0.02)
            assert (exporter.counts()["sent"], exporter.counts()["dropped"]) == (0, 0)
            assert telemetry.instances.counts.failed == 0
