"""Consume, transform, produce: each input has its output once, and its offset with it."""

import asyncio
from collections.abc import Callable

import aiokafka
import confluent_kafka
import kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.structs import OffsetAndMetadata

from ottla.testing.in_process import open_in_process_cluster

TIMEOUT_S = 60
BROKER_COUNT = 3
INPUT_COUNT = 40
ROUND = 10
"""Inputs of one transaction."""
GROUP = "workers"


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 1, BROKER_COUNT) for name in ("in", "out")]
    for made in admin.create_topics(topics).values():
        made.result(TIMEOUT_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(INPUT_COUNT):
        producer.produce("in", b"%d" % number)
    assert producer.flush(TIMEOUT_S) == 0


def read_out(bootstrap: str) -> list[int]:
    """Return the values that a read_committed consumer reads."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("out", 0, 0)])
    found = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
        found.append(int(message.value() or b""))
    consumer.close()
    return found


def committed_offset(bootstrap: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    (found,) = consumer.committed([confluent_kafka.TopicPartition("in", 0)], TIMEOUT_S)
    consumer.close()
    offset: int = found.offset
    return offset


def with_confluent(bootstrap: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["in"])
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "worker"}
    )
    producer.init_transactions(TIMEOUT_S)
    offset, attempt = 0, 0
    while offset < INPUT_COUNT:
        attempt += 1
        producer.begin_transaction()
        for message in consumer.consume(ROUND, TIMEOUT_S):
            producer.produce("out", message.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
        )
        if attempt % 2:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
            consumer.seek(confluent_kafka.TopicPartition("in", 0, offset))
        else:
            producer.commit_transaction(TIMEOUT_S)
            offset += ROUND
    consumer.close()


def with_kafka_python(bootstrap: str) -> None:
    consumer = kafka.KafkaConsumer(
        "in",
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=ROUND,
    )
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id="worker")
    producer.init_transactions()
    at = kafka.TopicPartition("in", 0)
    offset, attempt = 0, 0
    while offset < INPUT_COUNT:
        found = consumer.poll(TIMEOUT_S * 1_000).get(at, [])
        if not found:
            continue
        attempt += 1
        producer.begin_transaction()
        for message in found:
            producer.send("out", message.value)
        end = found[-1].offset + 1
        producer.send_offsets_to_transaction(
            {at: OffsetAndMetadata(end, "", -1)}, consumer.group_metadata()
        )
        if attempt % 2:
            producer.flush()
            producer.abort_transaction()
            consumer.seek(at, offset)
        else:
            producer.commit_transaction()
            offset = end
    producer.close()
    consumer.close()


def with_aiokafka(bootstrap: str) -> None:
    async def work() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            "in",
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="worker")
        await consumer.start()
        await producer.start()
        at = aiokafka.TopicPartition("in", 0)
        offset, attempt = 0, 0
        while offset < INPUT_COUNT:
            found = (await consumer.getmany(timeout_ms=1_000, max_records=ROUND)).get(at, [])
            if not found:
                continue
            attempt += 1
            await producer.begin_transaction()
            for message in found:
                await producer.send_and_wait("out", message.value)
            end = found[-1].offset + 1
            await producer.send_offsets_to_transaction({at: end}, GROUP)
            if attempt % 2:
                await producer.abort_transaction()
                consumer.seek(at, offset)
            else:
                await producer.commit_transaction()
                offset = end
        await producer.stop()
        await consumer.stop()

    asyncio.run(work())


@pytest.mark.parametrize("work", [with_confluent, with_kafka_python, with_aiokafka])
async def test_each_input_has_its_output_once_though_every_other_try_is_aborted(
    work: Callable[[str], None],
) -> None:
    def run(bootstrap: str) -> tuple[list[int], int]:
        make_topics(bootstrap)
        work(bootstrap)
        return read_out(bootstrap), committed_offset(bootstrap)

    with trio.fail_after(3 * TIMEOUT_S):
        async with open_in_process_cluster(broker_count=BROKER_COUNT) as cluster:
            found, offset = await trio.to_thread.run_sync(lambda: run(cluster.bootstrap))
            assert found == list(range(INPUT_COUNT))
            assert offset == INPUT_COUNT
