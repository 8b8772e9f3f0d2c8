"""Transactions of unmodified clients: committed records are read once, aborted ones never."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.in_process import InProcessCluster, open_in_process_cluster

T = TypeVar("T")

TIMEOUT_S = 60
BROKER_COUNT = 3


async def in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)


def make_topic(bootstrap: str, name: str = "orders", partition_count: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partition_count, BROKER_COUNT)
    admin.create_topics([topic])[name].result(TIMEOUT_S)


def read(bootstrap: str, count: int, *, isolation: str = "read_committed") -> list[bytes]:
    """Return the values of a topic, at least `count` of them, and all that come within a second."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{isolation}",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    partitions = [confluent_kafka.TopicPartition("orders", index, 0) for index in range(3)]
    consumer.assign(partitions)
    found: list[bytes] = []
    while (message := consumer.poll(TIMEOUT_S if len(found) < count else 1)) is not None:
        assert message.error() is None
        value = message.value()
        assert value is not None
        found.append(value)
    consumer.close()
    return sorted(found)


def producer_of(bootstrap: str, transactional_id: str = "payments", **settings: Any) -> Any:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def with_confluent(bootstrap: str) -> None:
    producer = producer_of(bootstrap)
    for number in range(6):
        producer.begin_transaction()
        for index in range(3):
            producer.produce("orders", b"%d" % (10 * number + index), partition=index)
        if number % 2:
            producer.flush(TIMEOUT_S)  # else what is queued is dropped, and never aborted
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)


def with_kafka_python(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id="payments")
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        for index in range(3):
            producer.send("orders", b"%d" % (10 * number + index), partition=index)
        if number % 2:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()


def with_aiokafka(bootstrap: str) -> None:
    async def produce() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id="payments"
        )
        await producer.start()
        for number in range(6):
            await producer.begin_transaction()
            for index in range(3):
                value = b"%d" % (10 * number + index)
                await producer.send_and_wait("orders", value, partition=index)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        await producer.stop()

    asyncio.run(produce())


@pytest.mark.parametrize("produce", [with_confluent, with_kafka_python, with_aiokafka])
async def test_readers_of_committed_records_see_what_was_committed(
    produce: Callable[[str], None],
) -> None:
    def run(bootstrap: str) -> tuple[list[bytes], list[bytes]]:
        make_topic(bootstrap)
        produce(bootstrap)
        return read(bootstrap, 9), read(bootstrap, 18, isolation="read_uncommitted")

    committed = sorted(b"%d" % (10 * number + index) for number in (0, 2, 4) for index in range(3))
    aborted = sorted(b"%d" % (10 * number + index) for number in (1, 3, 5) for index in range(3))
    with trio.fail_after(2 * TIMEOUT_S):
        async with open_in_process_cluster(broker_count=BROKER_COUNT) as cluster:
            found, every = await in_thread(lambda: run(cluster.bootstrap))
            assert found == committed
            assert every == sorted(committed + aborted)
            assert errors_of(cluster) == {}


async def test_a_producer_that_was_replaced_is_fenced_and_leaves_nothing() -> None:
    def run(bootstrap: str) -> tuple[confluent_kafka.KafkaError, list[bytes]]:
        make_topic(bootstrap)
        old = producer_of(bootstrap)
        old.begin_transaction()
        old.produce("orders", b"old", partition=0)
        old.flush(TIMEOUT_S)
        new = producer_of(bootstrap)
        new.begin_transaction()
        new.produce("orders", b"new", partition=0)
        new.commit_transaction(TIMEOUT_S)
        old.produce("orders", b"late", partition=0)
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            old.commit_transaction(TIMEOUT_S)
        error: confluent_kafka.KafkaError = caught.value.args[0]
        return error, read(bootstrap, 1)

    with trio.fail_after(2 * TIMEOUT_S):
        async with open_in_process_cluster(broker_count=BROKER_COUNT) as cluster:
            error, found = await in_thread(lambda: run(cluster.bootstrap))
            assert error.fatal()
            assert found == [b"new"]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_topic_that_is_deleted_holds_no_transaction_up(is_commit: bool) -> None:
    def run(bootstrap: str) -> list[bytes]:
        make_topic(bootstrap)
        make_topic(bootstrap, "doomed", partition_count=1)
        producer = producer_of(bootstrap)
        producer.begin_transaction()
        for topic in ("orders", "doomed"):
            producer.produce(topic, b"first", partition=0)
        producer.flush(TIMEOUT_S)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics(["doomed"])["doomed"].result(TIMEOUT_S)
        if is_commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
        # The next one begins only when the one before is complete.
        producer.begin_transaction()
        producer.produce("orders", b"second", partition=0)
        producer.commit_transaction(TIMEOUT_S)
        return read(bootstrap, 1 + is_commit)

    with trio.fail_after(2 * TIMEOUT_S):
        async with open_in_process_cluster(broker_count=BROKER_COUNT) as cluster:
            found = await in_thread(lambda: run(cluster.bootstrap))
            assert found == ([b"first", b"second"] if is_commit else [b"second"])
            assert errors_of(cluster) == {}


async def test_a_transaction_of_a_dead_client_ends_at_its_timeout() -> None:
    def run(bootstrap: str) -> list[bytes]:
        make_topic(bootstrap)
        settings = {"transaction.timeout.ms": 1_000, "message.timeout.ms": 1_000}
        dead = producer_of(bootstrap, "dead", **settings)
        dead.begin_transaction()
        dead.produce("orders", b"dead", partition=0)
        dead.flush(TIMEOUT_S)
        other = producer_of(bootstrap, "other")
        other.begin_transaction()
        other.produce("orders", b"behind it", partition=0)
        other.commit_transaction(TIMEOUT_S)
        return read(bootstrap, 1)

    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with trio.fail_after(2 * TIMEOUT_S):
        async with open_in_process_cluster(settings=settings, broker_count=BROKER_COUNT) as cluster:
            assert await in_thread(lambda: run(cluster.bootstrap)) == [b"behind it"]


def errors_of(cluster: InProcessCluster) -> dict[str, int]:
    return {
        kind: count
        for broker in cluster.brokers.values()
        for kind, count in broker.errors.counts.items()
    }
