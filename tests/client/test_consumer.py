"""The consumer in assign mode against a real broker."""

from typing import Any

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    ErrorCode,
    RefusedError,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.testing import ClusterUnderTest, open_test_cluster

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
EARLIEST = ConsumerConfig(auto_offset_reset="earliest")
TIMEOUT_S = 60


async def produce(bootstrap: str, count: int, *, partition: int = 0, start: int = 0) -> None:
    async with open_producer(bootstrap) as producer:
        for number in range(start, start + count):
            await producer.send(
                "t", b"%d" % number, partition=partition, timestamp_ms=1_000 + number
            )


async def read(consumer: Any, count: int) -> list[int]:
    """Return the values of `count` records."""
    found: list[int] = []
    with trio.fail_after(TIMEOUT_S):
        while len(found) < count:
            found += [int(record.value) for record in await consumer.poll()]
    return found


async def test_it_reads_several_partitions_each_in_order(ottla_cluster: ClusterUnderTest) -> None:
    bootstrap = ottla_cluster.bootstrap
    async with open_admin(bootstrap) as admin:
        await admin.create_topic("t", partition_count=2)
    await produce(bootstrap, 1_000, partition=0)
    await produce(bootstrap, 1_000, partition=1)
    found: dict[int, list[int]] = {0: [], 1: []}
    async with open_consumer(bootstrap, EARLIEST) as consumer:
        consumer.assign([A, B])
        with trio.fail_after(TIMEOUT_S):
            async for record in consumer:
                found[record.partition].append(int(record.value or b""))
                if sum(map(len, found.values())) == 2_000:
                    break
        assert await consumer.position(A) == await consumer.position(B) == 1_000
    assert found == {0: list(range(1_000)), 1: list(range(1_000))}


async def test_it_starts_at_the_given_place(ottla_cluster: ClusterUnderTest) -> None:
    bootstrap = ottla_cluster.bootstrap
    await produce(bootstrap, 100)
    async with open_consumer(bootstrap, EARLIEST) as consumer:
        consumer.assign([A])
        consumer.seek(A, 98)
        assert await read(consumer, 2) == [98, 99]
        consumer.seek_to_time(1_090)
        assert (await read(consumer, 10))[0] == 90
        consumer.seek_to_beginning(A)
        assert await read(consumer, 100) == list(range(100))
        consumer.seek_to_time(999_999)
        assert await consumer.position(A) == 100
        consumer.seek_to_end()
        assert await consumer.position(A) == 100
        assert await consumer.poll(0.05) == []
        await produce(bootstrap, 1, start=100)
        assert await read(consumer, 1) == [100]


async def test_a_partition_given_away_and_assigned_again_starts_again(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap = ottla_cluster.bootstrap
    await produce(bootstrap, 10)
    async with open_consumer(bootstrap, EARLIEST) as consumer:
        for _ in range(3):
            consumer.assign([A])
            assert await read(consumer, 10) == list(range(10))
            consumer.assign([])


async def test_the_latest_record_is_where_a_new_reader_begins_by_default(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap = ottla_cluster.bootstrap
    await produce(bootstrap, 10)
    async with open_consumer(bootstrap) as consumer:
        consumer.assign([A])
        assert await consumer.position(A) == 10
        assert await consumer.beginning_offsets([A]) == {A: 0}
        assert await consumer.end_offsets([A]) == {A: 10}
        found = await consumer.offsets_for_times({A: 1_004})
    assert (found[A].offset, found[A].timestamp_ms) == (4, 1_004)


async def test_a_paused_partition_gives_nothing_until_it_goes_on(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap = ottla_cluster.bootstrap
    async with open_admin(bootstrap) as admin:
        await admin.create_topic("t", partition_count=2)
    await produce(bootstrap, 5, partition=0)
    await produce(bootstrap, 5, partition=1, start=100)
    async with open_consumer(bootstrap, EARLIEST) as consumer:
        consumer.assign([A, B])
        consumer.pause(A)
        assert consumer.paused == {A}
        assert await read(consumer, 5) == [100, 101, 102, 103, 104]
        assert await consumer.poll(0.05) == []
        consumer.resume(A)
        assert await read(consumer, 5) == [0, 1, 2, 3, 4]


async def test_a_topic_that_comes_later_is_read_when_it_is_there(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap = ottla_cluster.bootstrap
    async with open_consumer(bootstrap, EARLIEST) as consumer, trio.open_nursery() as nursery:
        consumer.assign([A])
        nursery.start_soon(produce, bootstrap, 3)
        assert await read(consumer, 3) == [0, 1, 2]


async def test_what_retention_took_is_stepped_over_or_reported(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap = ottla_cluster.bootstrap
    await produce(bootstrap, 10)
    async with open_admin(bootstrap) as admin:
        assert await admin.delete_records({A: 6}) == {A: 6}
    async with open_consumer(bootstrap, EARLIEST) as consumer:
        consumer.assign([A])
        consumer.seek(A, 2)
        assert await read(consumer, 4) == [6, 7, 8, 9]
    async with open_consumer(bootstrap, ConsumerConfig(auto_offset_reset="none")) as consumer:
        consumer.assign([A])
        consumer.seek(A, 2)
        with trio.fail_after(TIMEOUT_S), pytest.raises(RefusedError) as refused:
            await consumer.poll()
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_reading_and_writing_go_on_over_a_brokers_restart(tmp_path: Any) -> None:
    port = None
    found: list[int] = []
    settings = {"log.flush.interval.messages": "1"}
    for round_ in range(2):
        async with open_test_cluster(directory=tmp_path, settings=settings) as cluster:
            assert cluster.bootstrap != port
            port = cluster.bootstrap
            await produce(cluster.bootstrap, 50, start=50 * round_)
            async with open_consumer(cluster.bootstrap, EARLIEST) as consumer:
                consumer.assign([A])
                found = await read(consumer, 50 * (round_ + 1))
    assert found == list(range(100))


async def test_records_come_from_three_brokers_and_from_who_is_left() -> None:
    async with open_test_cluster(broker_count=3) as cluster:
        bootstrap = cluster.bootstrap
        partitions = [TopicPartition("t", index) for index in range(6)]
        async with open_admin(bootstrap) as admin:
            await admin.create_topic("t", partition_count=6)
            leaders = {one.leader for one in (await admin.describe_topic("t")).partitions}
        assert leaders == {1, 2, 3}
        async with (
            open_producer(bootstrap) as producer,
            open_consumer(bootstrap, EARLIEST) as consumer,
        ):
            consumer.assign(partitions)
            for number in range(300):
                await producer.send("t", b"%d" % number, partition=number % 6)
            assert sorted(await read(consumer, 300)) == list(range(300))
            await cluster.brokers[next(iter(cluster.brokers))].leave()
            for number in range(300, 600):
                await producer.send("t", b"%d" % number, partition=number % 6)
            assert sorted(await read(consumer, 300)) == list(range(300, 600))


async def test_batches_come_of_each_partition_and_move_its_position(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap = ottla_cluster.bootstrap
    async with open_admin(bootstrap) as admin:
        await admin.create_topic("t", partition_count=2)
    await produce(bootstrap, 700, partition=0)
    await produce(bootstrap, 300, partition=1)
    found: dict[TopicPartition, list[int]] = {A: [], B: []}
    async with open_consumer(bootstrap, EARLIEST) as consumer:
        consumer.assign([A, B])
        with trio.fail_after(TIMEOUT_S):
            while sum(map(len, found.values())) < 1_000:
                batches = await consumer.poll_batches(record_count_max=90)
                assert 0 < sum(map(len, batches)) <= 90
                for batch in batches:
                    found[batch.at] += [int(value or b"") for value in batch.values]
                    assert list(batch.timestamps_ms) == [1_000 + at for at in batch.offsets]
                for at in {batch.at for batch in batches}:
                    assert await consumer.position(at) == len(found[at])
        assert await consumer.poll_batches(0) == []
        with pytest.raises(ValueError, match="bytes_max is 0"):
            await consumer.poll_batches(bytes_max=0)
        with pytest.raises(ValueError, match="record_count_max is 0"):
            await consumer.poll_batches(record_count_max=0)
    assert found == {A: list(range(700)), B: list(range(300))}


async def test_records_and_batches_go_on_where_the_other_stopped(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap = ottla_cluster.bootstrap
    await produce(bootstrap, 300)
    config = ConsumerConfig(auto_offset_reset="earliest", group_id="g", enable_auto_commit=False)
    found: list[int] = []
    async with open_consumer(bootstrap, config) as consumer:
        consumer.assign([A])
        with trio.fail_after(TIMEOUT_S):
            while len(found) < 200:
                found.append((await anext(consumer)).offset)
                for batch in await consumer.poll_batches(record_count_max=7):
                    found += batch.offsets
                found += [record.offset for record in await consumer.poll(record_count_max=5)]
            consumer.pause(A)
            assert await consumer.poll_batches(0) == []
            consumer.resume(A)
            await consumer.commit()
    async with open_consumer(bootstrap, config) as consumer:
        consumer.assign([A])
        with trio.fail_after(TIMEOUT_S):
            while len(found) < 300:
                for batch in await consumer.poll_batches(bytes_max=50):
                    assert batch.size_bytes <= 50
                    found += batch.offsets
    assert found == list(range(300))
