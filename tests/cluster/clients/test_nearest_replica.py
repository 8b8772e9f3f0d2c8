"""Consumers that read from a follower in their rack (KIP-392), by our client and librdkafka."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.consumer import Consumer, open_consumer
from ottla.model.ids import TopicPartition
from ottla.model.settings.broker import RACK_AWARE_SELECTOR
from ottla.model.settings.client import ConsumerConfig

pytestmark = pytest.mark.cluster

Processes = Any  # the class of the fixtures, in conftest.py
AT = TopicPartition("near", 0)
COUNT = 200


@pytest.fixture
def cluster(plan_cluster: Callable[..., Processes]) -> Processes:
    """Three brokers in racks of their own, and a topic with a replica in each."""
    processes: Processes = plan_cluster(
        brokers=3, default_replication_factor="3", replica_selector_class=RACK_AWARE_SELECTOR
    )
    processes.start(*processes.named("controller"))
    for name in processes.named("broker"):
        processes.start(name, broker_rack=f"rack-{processes.node(name).id}")
    admin = AdminClient(dict(processes.client))
    admin.create_topics([NewTopic(AT.topic, 1, 3)])[AT.topic].result(30)
    processes.wait_healthy()
    return processes


def fill(cluster: Processes, first: int, count: int) -> None:
    producer = Producer({**cluster.client, "acks": "all"})
    for number in range(first, first + count):
        producer.produce(AT.topic, str(number).encode())
    assert producer.flush(60) == 0


def followers(cluster: Processes) -> list[int]:
    return [one for one in cluster.replicas(AT.topic)[0] if one != cluster.leaders(AT.topic)[0]]


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with trio.fail_after(60):
        while len(found) < count:
            found += [record.value for record in await consumer.poll()]
    return found


def test_our_consumer_reads_from_its_rack_and_returns_to_the_leader(cluster: Processes) -> None:
    near = followers(cluster)[0]
    fill(cluster, 0, COUNT)

    async def body() -> tuple[list[bytes | None], int | None, list[bytes | None], int | None]:
        config = ConsumerConfig(client_rack=f"rack-{near}", auto_offset_reset="earliest")
        async with open_consumer(cluster.bootstrap, config) as consumer:
            consumer.assign([AT])
            first = await read(consumer, COUNT)
            place = consumer._positions.place(AT)
            source = place.preferred_node
            await trio.to_thread.run_sync(cluster.kill, f"broker {near}")
            await trio.to_thread.run_sync(fill, cluster, COUNT, COUNT)
            return first, source, await read(consumer, COUNT), place.preferred_node

    first, source, second, later = trio.run(body)

    assert first == [str(number).encode() for number in range(COUNT)]
    assert source == near
    assert second == [str(number).encode() for number in range(COUNT, 2 * COUNT)]
    assert later is None, "no other replica is in that rack"


def test_librdkafka_reads_from_its_rack(cluster: Processes) -> None:
    near = followers(cluster)[0]
    fill(cluster, 0, COUNT)
    sources: set[int] = set()

    def note(text: str) -> None:
        topic = json.loads(text)["topics"].get(AT.topic, {"partitions": {}})
        sources.update(
            int(one["broker"])
            for number, one in topic["partitions"].items()
            if number == "0" and one["fetch_state"] == "active"
        )

    consumer = ConfluentConsumer(
        {
            **cluster.client,
            "group.id": "near",
            "client.rack": f"rack-{near}",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 100,
            "stats_cb": note,
        }
    )
    consumer.subscribe([AT.topic])
    found: list[bytes | None] = []
    try:
        ends_at = time.monotonic() + 60
        while (len(found) < COUNT or near not in sources) and time.monotonic() < ends_at:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
    finally:
        consumer.close()

    assert found == [str(number).encode() for number in range(COUNT)]
    assert near in sources
