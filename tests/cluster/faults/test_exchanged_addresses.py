"""Clients of a cluster whose broker has exchanged its address with a broker of another cluster."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.cli.cluster.cluster_file import properties_of
from ottla.client import (
    Admin,
    ConsumerConfig,
    ProducerConfig,
    aio,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import LATEST
from tests.cluster.conftest import security_of

pytestmark = pytest.mark.cluster

Processes = Any  # the class of the fixtures, in conftest.py
TOPIC, PARTITION_COUNT, COUNT = "moved", 4, 200
TIMEOUT_S = 90


class TwoClusters:
    """Our cluster with two brokers, and another one, whose broker gets the address of our first."""

    def __init__(self, ours: Processes, theirs: Processes) -> None:
        self.ours = ours
        self.theirs = theirs
        first, second = ours.named("broker")
        self.first = first
        self.bootstrap = ours.node(second).address
        """The address of our second broker, which stays."""
        ours.client["bootstrap.servers"] = self.bootstrap

    def exchange(self) -> None:
        """Let our first broker and that of the other cluster exchange their addresses."""
        self.ours.kill(self.first)
        self.theirs.end("broker")
        at, others = self.ours.node(self.first), self.theirs.node("broker")
        self.theirs.start("broker", listeners=listeners(others, at.port))
        self.ours.start(self.first, listeners=listeners(at, others.port))
        self.ours.wait_healthy()

    def topics_of_others(self) -> str:
        """Return the topics of the other cluster, as `ottla topic list` prints them."""
        address = self.theirs.node("broker").address
        host = address.rpartition(":")[0]
        bootstrap = f"{host}:{self.ours.node(self.first).port}"
        self.theirs.client["bootstrap.servers"] = bootstrap
        return str(self.theirs.ottla("topic", "list").stdout)


def listeners(node: Any, port: int) -> str:
    """Return the listeners of a node with another port."""
    lines = Path(properties_of("broker", node)).read_text().splitlines()
    (line,) = [one for one in lines if one.startswith("listeners=")]
    return line.removeprefix("listeners=").replace(f":{node.port}", f":{port}")


@pytest.fixture
def clusters(plan_cluster: Callable[..., Processes]) -> TwoClusters:
    """Two clusters; ours has a topic with a partition on each broker."""
    # Clients try the address of the killed broker while its session lasts.
    ours = plan_cluster(brokers=2, default_replication_factor="1", ottla_early_failover="false")
    theirs = plan_cluster(brokers=1)
    for one in (ours, theirs):
        one.start()
        one.wait_healthy()
    words = ("--partitions", str(PARTITION_COUNT), "--replication-factor", "1")
    ours.ottla("topic", "create", TOPIC, *words)
    return TwoClusters(ours, theirs)


@contextmanager
def one_warning(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that each client of the block warns once that it starts again."""
    with caplog.at_level(logging.WARNING, "ottla.client.network"):
        yield
    found = [one.getMessage() for one in caplog.records if "starting again" in one.getMessage()]
    assert found
    assert all("is not broker 1 of cluster" in one for one in found), found


def settings(clusters: TwoClusters) -> dict[str, object]:
    found = {**clusters.ours.client, "metadata.max.age.ms": 1_000}
    del found["bootstrap.servers"]
    return found


def test_trio_clients_stay_with_their_cluster(
    clusters: TwoClusters, caplog: pytest.LogCaptureFixture
) -> None:
    security = security_of(clusters.ours.client)

    async def body() -> list[int]:
        producing = ProducerConfig.from_kafka(settings(clusters))
        consuming = ConsumerConfig.from_kafka(
            {**settings(clusters), "group.id": "g", "auto.offset.reset": "earliest"}
        )
        with trio.fail_after(TIMEOUT_S):
            async with (
                open_producer(clusters.bootstrap, producing) as producer,
                open_consumer(clusters.bootstrap, consuming) as consumer,
                open_admin(clusters.bootstrap, security=security) as admin,
            ):
                consumer.subscribe([TOPIC])
                for number in range(COUNT):
                    await producer.send(TOPIC, b"%d" % number, partition=number % PARTITION_COUNT)
                await producer.flush()
                found = await read(consumer, COUNT)
                assert await record_count(admin) == COUNT
                await trio.to_thread.run_sync(clusters.exchange)
                for number in range(COUNT, 2 * COUNT):
                    await producer.send(TOPIC, b"%d" % number, partition=number % PARTITION_COUNT)
                await producer.flush()
                assert await record_count(admin) == 2 * COUNT
                return found + await read(consumer, COUNT)

    with one_warning(caplog):
        found = trio.run(body)
    assert sorted(found) == list(range(2 * COUNT))
    assert TOPIC not in clusters.topics_of_others()


async def record_count(admin: Admin) -> int:
    """Return the sum of the end offsets of the topic."""
    ends = {TopicPartition(TOPIC, one): LATEST for one in range(PARTITION_COUNT)}
    return sum(found.offset for found in (await admin.list_offsets(ends)).values())


async def read(consumer: Any, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [int(record.value or b"") for record in await consumer.poll()]
    return found


def test_asyncio_clients_stay_with_their_cluster(
    clusters: TwoClusters, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> list[int]:
        producing = ProducerConfig.from_kafka(settings(clusters))
        consuming = ConsumerConfig.from_kafka(
            {**settings(clusters), "auto.offset.reset": "earliest"}
        )
        async with (
            asyncio.timeout(TIMEOUT_S),
            aio.open_producer(clusters.bootstrap, producing) as producer,
            aio.open_consumer(clusters.bootstrap, consuming) as consumer,
        ):
            await consumer.assign([TopicPartition(TOPIC, one) for one in range(PARTITION_COUNT)])
            found: list[int] = []
            for first in (0, COUNT):
                for number in range(first, first + COUNT):
                    await producer.send(TOPIC, b"%d" % number, partition=number % PARTITION_COUNT)
                await producer.flush()
                found += await read(consumer, COUNT)
                if not first:
                    await asyncio.to_thread(clusters.exchange)
            return found

    with one_warning(caplog):
        found = asyncio.run(body())
    assert sorted(found) == list(range(2 * COUNT))
    assert TOPIC not in clusters.topics_of_others()
