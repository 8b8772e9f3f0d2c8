"""The share consumer at Kafka's own broker.

If OTTLA_KAFKA_JARS names a directory with the jars of Kafka 4.4 or newer, a node is started.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
import trio

from ottla.bench.kafka.kafka_server import open_kafka
from ottla.client import (
    ConfigKind,
    ConfigResource,
    ConsumerConfig,
    ErrorCode,
    ProducerConfig,
    RefusedError,
    ShareConsumer,
    ShareConsumerConfig,
    ShareRecord,
    aio,
    open_admin,
    open_consumer,
    open_producer,
    open_share_consumer,
)

JARS = "OTTLA_KAFKA_JARS"
LOCK_S = 1.0
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(int(LOCK_S * 1_000)),
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
}
pytestmark = pytest.mark.timeout(300)
TIMEOUT_S = 60.0


class BadInputError(Exception):
    """A record that no attempt can process."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get(JARS)
    if not given:
        pytest.skip(f"LOUD: {JARS} is not set; Kafka's share groups were NOT used here")
    with open_kafka(Path(given), tmp_path_factory.mktemp("kafka"), SETTINGS) as server:
        yield server.bootstrap


@pytest.fixture
async def topic(bootstrap: str) -> str:
    return await created(bootstrap, 1)


async def created(bootstrap: str, partition_count: int) -> str:
    """Create a topic whose name is that of its group too, which reads from the start."""
    name = f"queue-{uuid4()}"
    async with open_admin(bootstrap) as admin:
        await admin.create_topic(name, partition_count=partition_count)
        group = ConfigResource(ConfigKind.GROUP, name)
        await admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
    return name


async def send(bootstrap: str, topic: str, count: int) -> None:
    async with open_producer(bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number)


@asynccontextmanager
async def joined(
    bootstrap: str, topic: str, mode: str = "explicit"
) -> AsyncIterator[ShareConsumer]:
    config = ShareConsumerConfig(
        group_id=topic, share_acknowledgement_mode=mode, fetch_wait_ms_max=100
    )
    with trio.fail_after(TIMEOUT_S):
        async with open_share_consumer(bootstrap, config) as consumer:
            consumer.subscribe([topic])
            yield consumer


def number(record: ShareRecord) -> int:
    return int(record.value or b"")


async def test_work_accepts_rejects_and_tries_again(bootstrap: str) -> None:
    topic = await created(bootstrap, 3)
    await send(bootstrap, topic, 200)
    attempts: dict[int, list[int]] = {}
    async with joined(bootstrap, topic) as consumer:

        async def handle(record: ShareRecord) -> None:
            attempts.setdefault(number(record), []).append(record.delivery_count)
            assert consumer.in_hand_count <= 8
            if number(record) % 50 == 7:
                raise BadInputError
            if number(record) % 50 == 9 and record.delivery_count == 1:
                raise ValueError("not yet")
            if sum(map(len, attempts.values())) == 204:
                consumer.stop()

        await consumer.work(handle, concurrency=8, rejects=(BadInputError,))
        assert consumer.in_hand_count == 0
    again = {9, 59, 109, 159}
    assert attempts == {one: [1, 2] if one in again else [1] for one in range(200)}
    async with joined(bootstrap, topic) as consumer:
        assert await consumer.poll(timeout_s=2) == [], "each record has ended"


async def test_records_are_renewed_while_a_handler_runs(bootstrap: str, topic: str) -> None:
    await send(bootstrap, topic, 1)
    deliveries: list[int] = []
    async with joined(bootstrap, topic) as consumer, joined(bootstrap, topic) as other:

        async def handle(record: ShareRecord) -> None:
            deliveries.append(record.delivery_count)
            await trio.sleep(3 * LOCK_S)
            await record.accept()  # which raises an error if the lock has ended
            consumer.stop()
            other.stop()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.work, handle)
            nursery.start_soon(other.work, handle)
    assert deliveries == [1]


async def test_a_cancelled_worker_releases_its_records_at_once(bootstrap: str, topic: str) -> None:
    await send(bootstrap, topic, 3)
    async with joined(bootstrap, topic) as consumer:
        started = trio.Event()

        async def hang(record: ShareRecord) -> None:
            started.set()
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.work, hang)
            await started.wait()
            nursery.cancel_scope.cancel()
        await consumer.flush()
        counts: list[int] = []
        with trio.fail_after(LOCK_S * 0.9):
            while len(counts) < 3:
                for record in await consumer.poll():
                    counts.append(record.delivery_count)
                    record.accept()
    assert max(counts) == 2


async def test_an_unsettled_record_is_an_error_or_accepted(bootstrap: str, topic: str) -> None:
    await send(bootstrap, topic, 2)
    async with joined(bootstrap, topic) as consumer:
        (first,) = await consumer.poll(record_count_max=1)
        with pytest.raises(RefusedError, match="at offset 0 is not settled"):
            await consumer.poll(timeout_s=0)
        await first.release()
        with pytest.raises(RefusedError, match="was settled before: release"):
            first.accept()
        assert first.is_settled
    async with joined(bootstrap, topic, "implicit") as consumer:
        found: list[tuple[int, int]] = []
        async for record in consumer:
            found.append((number(record), record.delivery_count))
            if len(found) == 2:
                record.accept()
                break
        assert sorted(found) == [(0, 2), (1, 1)]
        assert await consumer.poll(timeout_s=1) == []


async def test_a_batch_is_settled_but_for_records_that_were_settled_alone(
    bootstrap: str, topic: str
) -> None:
    await send(bootstrap, topic, 10)
    async with joined(bootstrap, topic) as consumer:
        (batch,) = await consumer.poll_batches(record_count_max=10)
        assert [int(value or b"") for value in batch.records.values] == list(range(len(batch)))
        assert len(batch) == 10 and batch.at == (topic, 0)
        records = list(batch)
        records[3].release()
        records[4].reject()
        await batch.accept()
        assert batch.is_settled and consumer.in_hand_count == 0
        (again,) = await consumer.poll()
        assert (number(again), again.delivery_count) == (3, 2)
        again.accept()


async def test_a_record_whose_lock_has_ended_is_delivered_again(bootstrap: str, topic: str) -> None:
    await send(bootstrap, topic, 1)
    async with joined(bootstrap, topic) as consumer, joined(bootstrap, topic) as other:
        (record,) = await consumer.poll()
        await trio.sleep(LOCK_S / 2)
        await record.renew()
        await trio.sleep(LOCK_S * 0.8)
        assert await other.poll(timeout_s=0) == [], "the lock was renewed"
        (again,) = await other.poll()
        assert again.delivery_count == 2
        await again.accept()
        with pytest.raises(RefusedError) as refused:
            await record.accept()
        assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


async def test_the_end_of_the_block_releases_and_sends_what_was_accepted(
    bootstrap: str, topic: str
) -> None:
    await send(bootstrap, topic, 4)
    async with joined(bootstrap, topic) as consumer:
        records = await consumer.poll(record_count_max=3)
        assert len(records) == 3
        records[1].accept()
    async with joined(bootstrap, topic) as consumer:
        found: dict[int, int] = {}
        while len(found) < 3:
            for record in await consumer.poll():
                found[number(record)] = record.delivery_count
                record.accept()
        assert found == {0: 2, 2: 2, 3: 1}


async def test_markers_of_transactions_are_no_records(bootstrap: str, topic: str) -> None:
    config = ProducerConfig(transactional_id=topic)
    async with open_producer(bootstrap, config) as producer:
        for value in (b"0", b"1"):
            async with producer.transaction():
                await producer.send(topic, value)
    await send(bootstrap, topic, 1)
    async with joined(bootstrap, topic) as consumer:
        offsets: list[int] = []
        while len(offsets) < 3:
            for record in await consumer.poll():
                offsets.append(record.offset)
                await record.accept()
        assert offsets == [0, 2, 4]
        await consumer.flush()
        assert consumer.in_hand_count == 0


async def test_a_group_of_another_type_is_named(bootstrap: str, topic: str) -> None:
    async with open_consumer(bootstrap, ConsumerConfig(group_id=topic)) as consumer:
        consumer.subscribe([topic])
        await consumer.poll(timeout_s=5)
        async with joined(bootstrap, topic) as share:
            with pytest.raises(RefusedError, match="group of another type"):
                await share.poll()


def test_the_asyncio_form_works_alike(bootstrap: str) -> None:
    topic = f"queue-{uuid4()}"
    config = ShareConsumerConfig(group_id=topic)

    async def main() -> None:
        async with aio.open_admin(bootstrap) as admin:
            await admin.create_topic(topic, partition_count=1)
            group = ConfigResource(ConfigKind.GROUP, topic)
            await admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
        async with aio.open_producer(bootstrap) as producer:
            await producer.send_many(topic, [b"%d" % one for one in range(6)])
        done: list[int] = []
        async with aio.open_share_consumer(bootstrap, config) as consumer:
            await consumer.subscribe([topic])
            async for record in consumer:
                await record.accept()
                with pytest.raises(RefusedError, match="settled before"):
                    record.reject()
                break
            (batch,) = await consumer.poll_batches(record_count_max=1)
            await batch.accept()

            async def handle(record: aio.AioShareRecord) -> None:
                done.append(int(record.value or b""))
                await asyncio.sleep(0.01)
                if record.value == b"3":
                    raise BadInputError
                if len(done) == 4:
                    await consumer.stop()

            await consumer.work(handle, rejects=(BadInputError,), concurrency=2)
            assert await consumer.in_hand_count() == 0
        assert sorted(done) == [2, 3, 4, 5]

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
