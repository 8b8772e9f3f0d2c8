"""Dead letter topics that are deleted, too small or the source itself, at a whole broker: the
records wait, and their letters arrive once the topic is repaired."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from ottla.client import (
    Admin,
    ConfigKind,
    ConfigResource,
    ConsumerConfig,
    ShareConsumerConfig,
    open_admin,
    open_consumer,
    open_producer,
    open_share_consumer,
)
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ErrorCode, RefusedError

SOURCE, LETTERS, GROUP = "dlq.source", "dlq.letters", "workers"
IS_ENABLED = {"errors.deadletterqueue.group.enable": "true"}
TIMEOUT_S = 120.0


class DeadLetterCluster:
    """Cluster of one broker whose share group rejects every record."""

    def __init__(self, cluster: Any, admin: Admin) -> None:
        self.cluster = cluster
        self.admin = admin
        self.bootstrap: str = cluster.bootstrap

    async def configure(self, topic: str) -> None:
        """Set the dead letter topic of the group."""
        settings = {
            "share.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": topic,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        await self.admin.alter_configs(ConfigResource(ConfigKind.GROUP, GROUP), settings)

    async def reject(self, value: bytes) -> None:
        """Produce a record, and have a member of the group reject it."""
        async with open_producer(self.bootstrap) as producer:
            await (await producer.send(SOURCE, value))
        config = ShareConsumerConfig(group_id=GROUP)
        async with open_share_consumer(self.bootstrap, config) as consumer:
            consumer.subscribe([SOURCE])
            async for record in consumer:
                assert record.value == value, "a rejected record is not delivered again"
                await record.reject()
                return

    async def until_problem(self, text: str) -> None:
        """Wait until the broker reports a problem with a text."""
        (broker,) = self.cluster.brokers.values()
        while not any(text in one for one in broker.parts.all_problems()):
            await trio.sleep(0.05)

    async def letters(self, count: int) -> list[bytes | None]:
        """Wait for a number of letters, and return their values."""
        values: list[bytes | None] = []
        config = ConsumerConfig(group_id=f"reader-{count}", auto_offset_reset="earliest")
        async with open_consumer(self.bootstrap, config) as consumer:
            consumer.subscribe([LETTERS])
            while len(values) < count:
                values += [letter.value for letter in await consumer.poll(timeout_s=1)]
        return values


@pytest.fixture
async def cluster() -> AsyncIterator[DeadLetterCluster]:
    settings = {"group.share.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster(settings=settings) as cluster,
            open_admin(cluster.bootstrap) as admin,
        ):
            await admin.create_topic(SOURCE, partition_count=1, configs=IS_ENABLED)
            yield DeadLetterCluster(cluster, admin)


async def test_letters_wait_while_their_topic_is_deleted(cluster: DeadLetterCluster) -> None:
    await cluster.admin.create_topic(LETTERS, configs=IS_ENABLED)
    await cluster.configure(LETTERS)
    await cluster.reject(b"a")
    assert await cluster.letters(1) == [b"a"]
    await cluster.admin.delete_topics([LETTERS])
    await cluster.reject(b"b")
    await cluster.until_problem(f"{LETTERS} does not exist")
    await cluster.admin.create_topic(LETTERS, configs=IS_ENABLED)
    assert await cluster.letters(1) == [b"b"]


async def test_the_source_gets_no_letters_of_its_own(cluster: DeadLetterCluster) -> None:
    await cluster.admin.create_topic(LETTERS, configs=IS_ENABLED)
    await cluster.configure(SOURCE)
    await cluster.reject(b"a")
    await cluster.until_problem(f"{SOURCE} is the topic of the rejected records")
    await cluster.configure(LETTERS)
    assert await cluster.letters(1) == [b"a"]


async def test_a_letter_waits_until_its_topic_accepts_its_size(cluster: DeadLetterCluster) -> None:
    await cluster.admin.create_topic(LETTERS, configs={**IS_ENABLED, "max.message.bytes": "600"})
    await cluster.configure(LETTERS)
    await cluster.reject(b"large" * 100)
    await cluster.until_problem("MESSAGE_TOO_LARGE")
    await cluster.reject(b"small")
    assert await cluster.letters(1) == [b"small"]
    topic = ConfigResource(ConfigKind.TOPIC, LETTERS)
    await cluster.admin.alter_configs(topic, {"max.message.bytes": "10000"})
    assert await cluster.letters(2) == [b"small", b"large" * 100]


async def test_an_internal_topic_is_refused_as_by_kafka(cluster: DeadLetterCluster) -> None:
    with pytest.raises(RefusedError, match="DLQ topic name must not start with '__'") as refusal:
        await cluster.configure("__consumer_offsets")
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
