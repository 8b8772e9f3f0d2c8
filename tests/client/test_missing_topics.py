"""Consumers and producers of topics that do not exist, against a real cluster."""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from ottla.client import (
    Consumer,
    ConsumerConfig,
    ErrorCode,
    ProducerConfig,
    RefusedError,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.testing import ClusterUnderTest, open_test_cluster

TIMEOUT_S = 60
PROTOCOLS = ("classic", "consumer")

Begin = Callable[[Consumer], None]


def assign(consumer: Consumer) -> None:
    consumer.assign([TopicPartition("lost", 0)])


def subscribe(consumer: Consumer) -> None:
    consumer.subscribe(["lost"])


def subscribe_to_pattern(consumer: Consumer) -> None:
    consumer.subscribe(pattern="lost.*")


WAYS = [
    (None, assign, "there is no topic 'lost'"),
    *(
        (protocol, begin, sentence)
        for protocol in PROTOCOLS
        for begin, sentence in (
            (subscribe, "there is no topic 'lost'"),
            (subscribe_to_pattern, "no topic matches the pattern 'lost.*'"),
        )
    ),
]


@pytest.fixture
async def strict_cluster() -> AsyncIterator[ClusterUnderTest]:
    """Yield a cluster that creates no topics automatically."""
    async with open_test_cluster(settings={"auto.create.topics.enable": "false"}) as cluster:
        yield cluster


def config(protocol: str | None, **settings: Any) -> ConsumerConfig:
    return ConsumerConfig(
        group_id=None if protocol is None else "g",
        group_protocol=protocol or "classic",
        auto_offset_reset="earliest",
        metadata_age_ms_max=500,
        **settings,
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if (record.name, record.levelno) == ("ottla.client", logging.WARNING)
    ]


async def logged(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """Wait for warnings, and return them."""
    with trio.fail_after(TIMEOUT_S):
        while len(warnings(caplog)) < count:
            await trio.sleep(0.02)
    return warnings(caplog)


@pytest.mark.parametrize(("protocol", "begin", "sentence"), WAYS)
async def test_a_missing_topic_is_logged_once_and_read_once_it_exists(
    strict_cluster: ClusterUnderTest,
    caplog: pytest.LogCaptureFixture,
    protocol: str | None,
    begin: Begin,
    sentence: str,
) -> None:
    bootstrap = strict_cluster.bootstrap
    async with open_consumer(bootstrap, config(protocol)) as consumer:
        begin(consumer)
        with trio.fail_after(TIMEOUT_S):
            while not warnings(caplog):
                assert await consumer.poll(0.5) == []
        (message,) = warnings(caplog)
        assert message.startswith(sentence)
        async with open_admin(bootstrap) as admin, open_producer(bootstrap) as producer:
            await admin.create_topic("lost")
            await producer.send("lost", b"found")
            await producer.flush()
        with trio.fail_after(TIMEOUT_S):
            (record,) = await consumer.poll()
    assert record.value == b"found"
    assert warnings(caplog) == [message]


@pytest.mark.parametrize(("protocol", "begin", "sentence"), WAYS)
async def test_each_poll_raises_while_the_topic_is_missing(
    strict_cluster: ClusterUnderTest,
    caplog: pytest.LogCaptureFixture,
    protocol: str | None,
    begin: Begin,
    sentence: str,
) -> None:
    async with open_consumer(
        strict_cluster.bootstrap, config(protocol, on_missing="raise")
    ) as consumer:
        begin(consumer)
        for _ in range(2):
            with pytest.raises(RefusedError, match=sentence) as refused, trio.fail_after(TIMEOUT_S):
                await consumer.poll()
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert warnings(caplog) == []


async def test_with_wait_a_missing_topic_is_not_reported(
    strict_cluster: ClusterUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_consumer(strict_cluster.bootstrap, config(None, on_missing="wait")) as consumer:
        assign(consumer)
        assert await consumer.poll(2.5) == []
    assert warnings(caplog) == []


async def test_a_topic_that_is_deleted_again_is_reported_again(
    strict_cluster: ClusterUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = strict_cluster.bootstrap
    async with open_consumer(bootstrap, config(None)) as consumer, open_admin(bootstrap) as admin:
        assign(consumer)
        await logged(caplog, 1)
        await admin.create_topic("lost")
        async with open_producer(bootstrap) as producer:
            await producer.send("lost", b"found")
        with trio.fail_after(TIMEOUT_S):
            await consumer.poll()
        await admin.delete_topic("lost")
        first, second = await logged(caplog, 2)
    assert first == second


async def test_a_subscription_to_existing_topics_is_not_reported(
    ottla_cluster: ClusterUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = ottla_cluster.bootstrap
    async with open_producer(bootstrap) as producer:
        await producer.send("lost", b"x")  # created by this record
    async with open_consumer(bootstrap, config("classic", on_missing="raise")) as consumer:
        subscribe_to_pattern(consumer)
        assert len(await consumer.poll()) == 1
        assert await consumer.poll(1.5) == []
    assert warnings(caplog) == []


async def test_a_producer_logs_a_missing_topic_and_continues_to_wait(
    strict_cluster: ClusterUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        open_producer(strict_cluster.bootstrap) as producer,
        open_admin(strict_cluster.bootstrap) as admin,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(producer.send, "lost", b"x")
        (message,) = await logged(caplog, 1)
        await admin.create_topic("lost")
    assert message.startswith("there is no topic 'lost'; create it with 'ottla topic create lost'")
    assert warnings(caplog) == [message]


async def test_each_send_to_a_missing_topic_raises_before_max_block_ms(
    strict_cluster: ClusterUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_producer(
        strict_cluster.bootstrap, ProducerConfig(on_missing="raise")
    ) as producer:
        for _ in range(2):
            with pytest.raises(RefusedError, match="topic create") as refused, trio.fail_after(50):
                await producer.send("lost", b"x")
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert warnings(caplog) == []


async def test_a_consumer_that_can_receive_nothing_says_so_once(
    ottla_cluster: ClusterUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    config = ConsumerConfig(group_id="readers", auto_offset_reset="earliest")
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await producer.send("orders", b"one")
    async with open_consumer(ottla_cluster.bootstrap, config) as consumer:
        for _ in range(2):
            assert await consumer.poll(0.01) == []
        assert warnings(caplog) == [
            "the consumer waits for records without a subscription or an assignment; call "
            "subscribe(topics) or assign(partitions) first"
        ]
        caplog.clear()
        consumer.subscribe(["orders"])
        assert [one.value for one in await consumer.poll(TIMEOUT_S)] == [b"one"]
    async with open_consumer(ottla_cluster.bootstrap) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        await consumer.poll(0.01)
        with pytest.raises(RefusedError, match=r"open it with ConsumerConfig\(group_id=…\)"):
            consumer.subscribe(["orders"])
    assert "without a subscription" not in caplog.text
