"""The faults of the cluster for users' tests, each as a user's test would have it."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    NotDeliveredError,
    Producer,
    ProducerConfig,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortedError,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.network.connection import ConnectionLostError, open_connection
from ottla.client.testing import ClusterUnderTest, open_test_cluster

AT = TopicPartition("t", 0)


async def values_of(bootstrap: str) -> list[bytes | None]:
    """Read everything that is in the topic."""
    async with open_consumer(bootstrap) as consumer:
        consumer.assign([AT])
        consumer.seek_to_beginning()
        end = (await consumer.end_offsets([AT]))[AT]
        found: list[bytes | None] = []
        while await consumer.position(AT) < end:
            found += [record.value for record in await consumer.poll()]
        return found


async def until(cluster: ClusterUnderTest, happened: Callable[[], Awaitable[bool]]) -> None:
    """Let time pass until it happened."""
    for _ in range(100):
        if await happened():
            return
        await cluster.advance(1)
    raise AssertionError


async def deliver(producer: Producer, value: bytes) -> int:
    return (await (await producer.send("t", value))).offset


async def test_a_stopped_broker_is_refused_and_comes_back_with_its_records(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await deliver(producer, b"before")
        await ottla_cluster.stop(1)
        assert not ottla_cluster.brokers
        host, _, port = ottla_cluster.bootstrap.partition(":")
        with pytest.raises(ConnectionLostError, match="no process listens there"):
            async with open_connection(host, int(port)):
                raise AssertionError
        delivery = await producer.send("t", b"meanwhile")
        await ottla_cluster.start(1)
        await delivery
    assert await values_of(ottla_cluster.bootstrap) == [b"before", b"meanwhile"]


async def leader_of(bootstrap: str) -> int:
    async with open_admin(bootstrap) as admin:
        leader = (await admin.describe_topic("t")).partitions[0].leader
        assert leader is not None
        return leader


async def test_leaderships_move_from_a_broker_that_is_stopped() -> None:
    async with open_test_cluster(broker_count=3) as cluster:
        async with open_producer(cluster.bootstrap) as producer:
            await deliver(producer, b"0")
            leader = await leader_of(cluster.bootstrap)
            await cluster.stop(leader)
            await deliver(producer, b"1")
            assert await leader_of(cluster.bootstrap) != leader
            await cluster.start(leader)
        assert await values_of(cluster.bootstrap) == [b"0", b"1"]


async def test_a_send_to_a_paused_broker_fails_in_words_once_its_time_is_over(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await deliver(producer, b"before")
        with ottla_cluster.paused(1):
            delivery = await producer.send("t", b"late")
            await ottla_cluster.advance(121)
            assert delivery.is_settled
            with pytest.raises(NotDeliveredError, match="not delivered in 120000 ms"):
                await delivery
        await deliver(producer, b"after")


async def test_a_paused_broker_serves_what_arrived_when_it_resumes(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await deliver(producer, b"before")
        with ottla_cluster.paused(1):
            delivery = await producer.send("t", b"while paused")
            await trio.sleep(0.2)
            assert not delivery.is_settled
        await delivery
    assert await values_of(ottla_cluster.bootstrap) == [b"before", b"while paused"]


async def test_answers_of_a_slow_broker_take_their_time(ottla_cluster: ClusterUnderTest) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await deliver(producer, b"quick")
        ottla_cluster.slow(1, 20)
        delivery = await producer.send("t", b"slow")
        await ottla_cluster.advance(19)
        assert not delivery.is_settled
        await ottla_cluster.advance(2)
        await delivery
        ottla_cluster.slow(1, 0)
        await deliver(producer, b"quick again")


async def test_a_producer_survives_lost_answers_without_duplicates(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        lost = ottla_cluster.lose_answers("Produce", count=3)
        for number in range(10):
            await deliver(producer, b"%d" % number)
    assert (lost.lost, lost.left) == (3, 0)
    assert await values_of(ottla_cluster.bootstrap) == [b"%d" % number for number in range(10)]


async def test_without_idempotence_a_lost_answer_is_a_duplicate(
    ottla_cluster: ClusterUnderTest,
) -> None:
    config = ProducerConfig(enable_idempotence=False)
    async with open_producer(ottla_cluster.bootstrap, config) as producer:
        ottla_cluster.lose_answers("Produce")
        await deliver(producer, b"twice")
    assert await values_of(ottla_cluster.bootstrap) == [b"twice", b"twice"]


async def test_a_client_that_is_refused_keeps_its_connections_until_they_are_cut(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await deliver(producer, b"0")
        with ottla_cluster.refusing(1):
            await deliver(producer, b"1")
            with pytest.raises(ConnectionLostError, match="no process listens there"):
                async with open_connection(*_address(ottla_cluster)):
                    raise AssertionError
            ottla_cluster.cut_connections(1)
            delivery = await producer.send("t", b"2")
            await trio.sleep(0.3)
            assert not delivery.is_settled
        await delivery
    assert await values_of(ottla_cluster.bootstrap) == [b"0", b"1", b"2"]


def _address(cluster: ClusterUnderTest) -> tuple[str, int]:
    host, _, port = cluster.bootstrap.partition(":")
    return host, int(port)


async def test_an_advance_ends_a_linger(ottla_cluster: ClusterUnderTest) -> None:
    async with open_producer(ottla_cluster.bootstrap, ProducerConfig(linger_ms=60_000)) as producer:
        delivery = await producer.send("t", b"x")
        await trio.sleep(0.1)
        assert not delivery.is_settled
        await ottla_cluster.advance(61)
        assert delivery.is_settled


async def test_records_older_than_retention_go_by_an_advance() -> None:
    settings = {"log.retention.ms": "604800000"}
    async with open_test_cluster(settings=settings) as cluster:
        async with open_producer(cluster.bootstrap) as producer:
            await deliver(producer, b"old")
        await cluster.advance(8 * 86_400)

        async def is_gone() -> bool:
            return await values_of(cluster.bootstrap) == []

        await until(cluster, is_gone)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_that_does_not_poll_for_too_long_loses_its_partitions(
    protocol: str, ottla_cluster: ClusterUnderTest
) -> None:
    def config(client_id: str, poll_ms: int) -> ConsumerConfig:
        return ConsumerConfig(
            client_id=client_id,
            group_id="g",
            group_protocol=protocol,
            poll_interval_ms_max=poll_ms,
        )

    bootstrap = ottla_cluster.bootstrap
    async with open_admin(bootstrap) as admin:
        await admin.create_topic("t", partition_count=2)
    async with (
        open_consumer(bootstrap, config("idle", 300_000)) as idle,
        open_consumer(bootstrap, config("busy", 3_000_000)) as busy,
    ):
        idle.subscribe(["t"])
        busy.subscribe(["t"])

        async def is_shared() -> bool:
            await idle.poll(0.05)
            await busy.poll(0.05)
            return len(idle.assignment) == len(busy.assignment) == 1

        await until(ottla_cluster, is_shared)
        await ottla_cluster.advance(301)

        async def has_taken_over() -> bool:
            await busy.poll(0.05)
            return len(busy.assignment) == 2

        await until(ottla_cluster, has_taken_over)


async def test_a_member_that_is_not_heard_of_is_expelled_by_its_session_timeout(
    ottla_cluster: ClusterUnderTest,
) -> None:
    lost: list[TopicPartition] = []

    async def on_lost(partitions: tuple[TopicPartition, ...]) -> None:
        lost.extend(partitions)

    bootstrap = ottla_cluster.bootstrap
    async with open_admin(bootstrap) as admin:
        await admin.create_topic("t")
    async with open_consumer(bootstrap, ConsumerConfig(group_id="g")) as consumer:
        consumer.subscribe(["t"], on_lost=on_lost)

        async def has_joined() -> bool:
            await consumer.poll(0.05)
            return bool(consumer.assignment)

        await until(ottla_cluster, has_joined)
        await ottla_cluster.advance(40)
        await consumer.poll(0.05)
        assert not lost
        with ottla_cluster.paused(1):
            await ottla_cluster.advance(46)

        async def was_reported() -> bool:
            await consumer.poll(0.05)
            return bool(lost) and bool(consumer.assignment)

        await until(ottla_cluster, was_reported)
    assert lost == [AT]


async def test_a_transaction_that_takes_too_long_is_aborted(
    ottla_cluster: ClusterUnderTest,
) -> None:
    config = ProducerConfig(transactional_id="x", transaction_timeout_ms=60_000)
    async with open_producer(ottla_cluster.bootstrap, config) as producer:
        with pytest.raises((ProducerFencedError, TransactionAbortedError)):
            async with producer.transaction():
                await (await producer.send("t", b"never"))
                await ottla_cluster.advance(75)
    async with open_consumer(
        ottla_cluster.bootstrap, ConsumerConfig(isolation_level="read_committed")
    ) as consumer:
        consumer.assign([AT])
        consumer.seek_to_beginning()
        assert await consumer.poll(1) == []


async def test_what_there_is_not_is_refused_in_words(ottla_cluster: ClusterUnderTest) -> None:
    with pytest.raises(ValueError, match="there is no broker 7; there are 1"):
        await ottla_cluster.stop(7)
    with pytest.raises(ValueError, match="broker 1 is already running"):
        await ottla_cluster.start(1)
    with pytest.raises(ValueError, match="there is no API 'Produc'"):
        ottla_cluster.lose_answers("Produc")
    with pytest.raises(ValueError, match="seconds is -1"):
        await ottla_cluster.advance(-1)
    with pytest.raises(ValueError, match="seconds is -1"):
        ottla_cluster.slow(1, -1)


@pytest.mark.parametrize("fault", ["paused", "refusing"])
async def test_a_fault_outlasts_a_stop_and_ends_with_its_block(
    fault: str, ottla_cluster: ClusterUnderTest
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await deliver(producer, b"0")
        with getattr(ottla_cluster, fault)(1):
            await ottla_cluster.stop(1)
            await ottla_cluster.start(1)
            delivery = await producer.send("t", b"1")
            await trio.sleep(0.3)
            assert not delivery.is_settled
        await delivery
