"""Our own client while brokers die and hang: each record that it sent exists once, in order."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    ConsumerRecord,
    ProducerConfig,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

PARTITIONS = [TopicPartition("t", index) for index in range(6)]
SHORT_SESSION = {"broker_session_timeout_ms": "2000", "broker_heartbeat_interval_ms": "300"}
RATE_PAUSE_S = 0.002


async def in_thread(work: Callable[..., Any], *arguments: str) -> None:
    await trio.to_thread.run_sync(work, *arguments)


async def test_brokers_are_killed_and_paused_under_a_producer_and_a_consumer(
    plan_cluster: Callable[..., Any],
) -> None:
    cluster = await trio.to_thread.run_sync(lambda: plan_cluster(controllers=1, brokers=3))
    await trio.to_thread.run_sync(lambda: cluster.start(**SHORT_SESSION))
    sent: dict[TopicPartition, list[int]] = {at: [] for at in PARTITIONS}
    read: dict[TopicPartition, list[ConsumerRecord]] = {at: [] for at in PARTITIONS}
    async with open_admin(cluster.bootstrap) as admin:
        await admin.create_topic(
            "t", partition_count=6, replication_factor=3, configs={"min.insync.replicas": "2"}
        )
    is_over = False

    async def produce() -> None:
        config = ProducerConfig(request_timeout_ms=1_500)
        async with open_producer(cluster.bootstrap, config) as producer:
            number = 0
            while not is_over:
                at = PARTITIONS[number % 6]
                await producer.send("t", b"%d" % number, partition=at.partition)
                sent[at].append(number)
                number += 1
                if number % 20 == 0:
                    await trio.sleep(RATE_PAUSE_S)

    async def consume() -> None:
        async with open_consumer(
            cluster.bootstrap, ConsumerConfig(auto_offset_reset="earliest")
        ) as consumer:
            consumer.assign(PARTITIONS)
            while not is_over or sum(map(len, read.values())) < sum(map(len, sent.values())):
                for record in await consumer.poll(0.2):
                    read[TopicPartition("t", record.partition)].append(record)

    with trio.fail_after(200):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            nursery.start_soon(consume)
            await trio.sleep(1)
            await in_thread(cluster.kill, "broker 1")
            await trio.sleep(3)
            await trio.to_thread.run_sync(lambda: cluster.start("broker 1", **SHORT_SESSION))
            await trio.to_thread.run_sync(cluster.wait_healthy)
            await in_thread(cluster.pause, "broker 2")
            await trio.sleep(4)
            await in_thread(cluster.resume, "broker 2")
            await trio.to_thread.run_sync(cluster.wait_healthy)
            await in_thread(cluster.end, "broker 3")
            await trio.sleep(1)
            is_over = True

    for at in PARTITIONS:
        assert [int(record.value or b"") for record in read[at]] == sent[at]
    assert sum(map(len, sent.values())) > 500
