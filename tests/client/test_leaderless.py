"""A topic of which one partition has no leader: the others serve, and it is waited for."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    NotDeliveredError,
    ProducerConfig,
    TopicPartition,
    open_consumer,
    open_producer,
)
from ottla.client.produce.partitioner import partition_of
from ottla.jepsen.fuzz.one_broker import BOOTSTRAP, PARTITION_COUNT, TOPIC, OneBroker
from ottla.jepsen.world.whole.loop import Loop, run_in_virtual_time
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.produce_request import ProduceRequest

HEALTHY, LEADERLESS = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
BROKER = frozenset({LEADERLESS.partition})
CONFIG = ProducerConfig(
    delivery_timeout_ms=4_000, request_timeout_ms=3_000, block_ms_max=2_000, batch_bytes=100
)
KEY = next(
    key for key in map(str, range(100)) if partition_of(key.encode(), PARTITION_COUNT) == 1
).encode()
"""A key of the partition without a leader."""


def run(main: Callable[[OneBroker], Awaitable[None]]) -> OneBroker:
    """Run against a broker of which one partition has no leader; return the broker."""
    broker = OneBroker()
    broker.leaderless = BROKER

    async def body(loop: Loop) -> None:
        broker.use()
        with trio.fail_after(100):
            await main(broker)

    run_in_virtual_time(body, seed=1)
    return broker


def test_a_first_record_for_a_healthy_partition_is_delivered_at_once() -> None:
    async def main(broker: OneBroker) -> None:
        async with open_producer(BOOTSTRAP, CONFIG) as producer:
            await (await producer.send(TOPIC, b"v", partition=HEALTHY.partition))
            assert trio.current_time() < 1

    run(main)


def test_records_without_a_key_avoid_the_partition_without_a_leader() -> None:
    async def main(broker: OneBroker) -> None:
        async with open_producer(BOOTSTRAP, CONFIG) as producer:
            for _ in range(100):
                await producer.send(TOPIC, b"some bytes of a record")
            await producer.flush()
            assert trio.current_time() < 1

    sent_to = {
        data.index
        for request in run(main).asked
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for data in topic.partition_data
    }
    assert sent_to == {HEALTHY.partition}


def test_a_keyed_record_waits_until_its_partition_has_a_leader() -> None:
    async def main(broker: OneBroker) -> None:
        async with open_producer(BOOTSTRAP, CONFIG) as producer:
            delivery = await producer.send(TOPIC, b"v", key=KEY)
            await trio.sleep(2)
            await (await producer.send(TOPIC, b"v", partition=HEALTHY.partition))
            broker.leaderless = frozenset()
            assert (await delivery).partition == LEADERLESS.partition
            assert 2 <= trio.current_time() < 3

    run(main)


def test_a_keyed_record_fails_after_its_delivery_timeout_where_no_leader_comes() -> None:
    async def main(broker: OneBroker) -> None:
        async with open_producer(BOOTSTRAP, CONFIG) as producer:
            delivery = await producer.send(TOPIC, b"v", key=KEY)
            with pytest.raises(NotDeliveredError):
                await delivery
            assert trio.current_time() == pytest.approx(4, abs=0.1)

    run(main)


def test_a_record_fails_after_its_delivery_timeout_though_no_broker_answers() -> None:
    async def main(broker: OneBroker) -> None:
        async with open_producer(BOOTSTRAP, CONFIG) as producer:
            await (await producer.send(TOPIC, b"v", partition=HEALTHY.partition))
            broker.silent_from = 0
            began_s = trio.current_time()
            delivery = await producer.send(TOPIC, b"v", key=KEY)
            with pytest.raises(NotDeliveredError):
                await delivery
            assert trio.current_time() - began_s == pytest.approx(4, abs=0.1)

    run(main)


def test_a_consumer_reads_the_others_and_asks_for_the_leader_now_and_then() -> None:
    async def main(broker: OneBroker) -> None:
        config = ConsumerConfig(auto_offset_reset="earliest", request_timeout_ms=5_000)
        async with open_consumer(BOOTSTRAP, config) as consumer:
            consumer.assign([HEALTHY, LEADERLESS])
            assert await consumer.position(HEALTHY) == 0
            assert trio.current_time() < 1
            await trio.sleep(10)
            assert await consumer.poll(1) == []
            broker.leaderless = frozenset()
            assert await consumer.position(LEADERLESS) == 0

    asked = [one for one in run(main).asked if isinstance(one, MetadataRequest)]
    assert len(asked) < 10 * 12 + 5, "ten a second, by retry.backoff.ms"
