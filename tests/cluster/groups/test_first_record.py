"""A new group has its first record at once, with every client and its default settings."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from ottla.client import open_consumer
from ottla.model.settings.client import ConsumerConfig

pytestmark = pytest.mark.cluster

PARTITION_COUNT = 6
ROUNDS = 5
FIRST_RECORD_S = 2.0
"""Seconds to the first record, by the fastest of some groups: far below Kafka's default delay of
the first join, three seconds."""


def make_topic(bootstrap: str, topic: str, *partitions: int) -> None:
    """Make a topic with a record in each of these partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITION_COUNT)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in partitions:
        producer.produce(topic, b"first", partition=partition)
    assert producer.flush(60) == 0


def by_confluent(bootstrap: str, topic: str, group: str, **changes: Any) -> float:
    started = time.monotonic()
    settings = {name.replace("_", "."): value for name, value in changes.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe([topic])
    while consumer.poll(10) is None:
        pass
    seconds = time.monotonic() - started
    consumer.close()
    return seconds


def by_kafka_python(bootstrap: str, topic: str, group: str) -> float:
    started = time.monotonic()
    consumer = KafkaConsumer(
        topic, group_id=group, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    )
    next(consumer)
    seconds = time.monotonic() - started
    consumer.close()
    return seconds


def by_aiokafka(bootstrap: str, topic: str, group: str) -> float:
    async def body() -> float:
        started = time.monotonic()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, group_id=group, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        await consumer.getone()
        seconds = time.monotonic() - started
        await consumer.stop()
        return seconds

    return asyncio.run(body())


def by_ottla(bootstrap: str, topic: str, group: str) -> float:
    async def body() -> float:
        started = time.monotonic()
        config = ConsumerConfig(group_id=group, auto_offset_reset="earliest")
        async with open_consumer(bootstrap, config) as consumer:
            consumer.subscribe([topic])
            await consumer.poll()
            return time.monotonic() - started

    return trio.run(body)


@pytest.mark.parametrize("read", [by_confluent, by_kafka_python, by_aiokafka, by_ottla])
def test_a_new_group_has_its_first_record_at_once(
    cluster: Any, read: Callable[[str, str, str], float]
) -> None:
    topic = read.__name__
    make_topic(cluster.bootstrap, topic, *range(PARTITION_COUNT))
    seconds = [read(cluster.bootstrap, topic, f"{topic}-{number}") for number in range(ROUNDS)]
    print(f"{topic}: {', '.join(f'{one * 1000:.0f}' for one in seconds)} ms")
    assert min(seconds) < FIRST_RECORD_S


def test_where_few_partitions_have_records_librdkafka_waits_for_its_own_first_fetch(
    cluster: Any,
) -> None:
    """Its first fetch has whichever partitions it had placed by then, often a single one.

    If these are empty, the others wait behind it for fetch.wait.max.ms, half a second by default:
    all requests before are answered within a millisecond. With a shorter one the wait is gone.
    """
    make_topic(cluster.bootstrap, "sparse", PARTITION_COUNT // 2)
    seconds = [
        by_confluent(cluster.bootstrap, "sparse", f"sparse-{number}", fetch_wait_max_ms=50)
        for number in range(ROUNDS)
    ]
    assert min(seconds) < FIRST_RECORD_S
