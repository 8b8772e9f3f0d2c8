"""aiokafka, unmodified, on a simulated cluster."""

import asyncio

import trio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ottla.client.admin import open_admin
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from tests.testing.world.small_world import BOOTSTRAP, in_cluster, instance

Bill = tuple[int, int]


def _play(seed: int) -> tuple[list[Bill], str]:
    """Let a consumer in a group copy 20 records, kill it in the middle and restart it. Returns the
    positions of the copied records, and the hash of the run's trace."""
    copied: list[Bill] = []

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as producer:
            for number in range(20):
                await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)

    async def copy() -> None:
        async with (
            AIOKafkaConsumer(
                "orders",
                bootstrap_servers=BOOTSTRAP,
                group_id="copiers",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            ) as consumer,
            AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True) as producer,
        ):
            async for record in consumer:
                await producer.send_and_wait("bills", record.value)
                copied.append((record.partition, record.offset))
                await asyncio.sleep(0.25)
                await consumer.commit()
                await asyncio.sleep(0.25)

    async def scenario(cluster: SimulatedCluster) -> None:
        async with open_admin(cluster.bootstrap, timeout_s=30) as admin:
            await admin.create_topic("orders", partition_count=2)
            await admin.create_topic("bills", partition_count=1)
        writer = instance(cluster.world, "writer", produce)
        writer.start()
        await writer.has_ended.wait()
        assert writer.failure is None
        copier = instance(cluster.world, "copier", copy)
        copier.start()
        await trio.sleep(4.7)
        copier.kill()
        count = len(copied)
        assert 0 < count < 20
        await trio.sleep(1)
        assert len(copied) == count
        copier.start()
        await trio.sleep(40)
        assert copier.failure is None
        await copier.stop()
        assert copier.failure is None

    return copied, in_cluster(scenario, seed=seed)


def test_a_killed_consumer_continues_after_its_last_commit() -> None:
    copied, _ = _play(seed=3)
    everything = {(partition, offset) for partition in range(2) for offset in range(10)}
    assert set(copied) == everything
    # A record is copied twice if the consumer was killed between its work and its commit.
    assert len(copied) - len(everything) <= 1


def test_two_runs_with_the_same_seed_are_equal() -> None:
    first, second, other = _play(seed=1), _play(seed=1), _play(seed=2)
    assert first == second
    assert first[1] != other[1]
