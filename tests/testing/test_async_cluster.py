"""The cluster of asyncio tests, with asyncio clients: Ottla's own and aiokafka."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ottla.client import ProducerConfig, TopicPartition
from ottla.client.aio import open_consumer, open_producer
from ottla.testing import async_cluster

ORDERS = TopicPartition("orders", 0)


async def deliver(bootstrap: str, value: bytes) -> int:
    """Produce one record; return its offset."""
    async with open_producer(bootstrap) as producer:
        offset: int = (await (await producer.send("orders", value))).offset
        return offset


def test_clients_go_on_while_a_broker_restarts() -> None:
    async def scenario() -> list[int]:
        async with async_cluster() as cluster, open_producer(cluster.bootstrap) as producer:
            first = await (await producer.send("orders", b"one"))
            await cluster.stop(1)
            second = await producer.send("orders", b"two")
            await cluster.start(1)
            return [first.offset, (await second).offset]

    assert asyncio.run(scenario()) == [0, 1]


def test_aiokafka_produces_and_consumes() -> None:
    async def scenario() -> bytes | None:
        async with async_cluster() as cluster:
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap)
            await producer.start()
            await producer.send_and_wait("orders", b"one")
            await producer.stop()
            consumer = AIOKafkaConsumer(
                "orders",
                bootstrap_servers=cluster.bootstrap,
                group_id="billing",
                auto_offset_reset="earliest",
            )
            await consumer.start()
            try:
                value: bytes | None = (await consumer.getone()).value
                return value
            finally:
                await consumer.stop()

    assert asyncio.run(scenario()) == b"one"


def test_a_reset_and_faults_work_in_the_loop_of_the_clients() -> None:
    async def scenario() -> tuple[list[int], int]:
        async with async_cluster() as cluster:
            offsets = [await deliver(cluster.bootstrap, b"one")]
            await cluster.reset()
            lost = cluster.lose_answers("Produce")
            offsets.append(await deliver(cluster.bootstrap, b"two"))
            with cluster.paused(1), cluster.refusing(1):
                cluster.cut_connections(1)
                cluster.slow(1, 0.001)
            offsets.append(await deliver(cluster.bootstrap, b"three"))
            return offsets, lost.lost

    assert asyncio.run(scenario()) == ([0, 0, 1], 1)


def test_advanced_time_ends_the_retention_of_records() -> None:
    async def scenario() -> tuple[int, int]:
        settings = {
            "log.retention.ms": "1000",
            "log.segment.delete.delay.ms": "0",
            "log.retention.check.interval.ms": "1000",
            "log.message.timestamp.type": "LogAppendTime",
        }
        async with async_cluster(settings=settings) as cluster:
            await deliver(cluster.bootstrap, b"one")
            async with open_consumer(cluster.bootstrap) as consumer:
                before = (await consumer.beginning_offsets([ORDERS]))[ORDERS]
                while (after := (await consumer.beginning_offsets([ORDERS]))[ORDERS]) == before:
                    await cluster.advance(60)
            return before, after

    assert asyncio.run(scenario()) == (0, 1)


def test_a_secure_cluster_gives_the_settings_of_a_client() -> None:
    async def scenario() -> int:
        async with async_cluster(is_secure=True) as cluster:
            config = ProducerConfig.from_kafka(cluster.client_settings)
            async with open_producer(cluster.bootstrap, config) as producer:
                offset: int = (await (await producer.send("orders", b"one"))).offset
                return offset

    assert asyncio.run(scenario()) == 0
