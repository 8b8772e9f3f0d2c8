"""A partitioner of the application's own, and a start by duration, against a real broker."""

import asyncio
import time

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    ErrorCode,
    RefusedError,
    TopicPartition,
    UnplacedRecord,
    aio,
    open_consumer,
    open_producer,
)
from ottla.client.testing import ClusterUnderTest, open_test_cluster

PARTITION_COUNT = 4
WITH_PARTITIONS = {"num.partitions": str(PARTITION_COUNT)}


def by_first_digit(record: UnplacedRecord) -> int | None:
    """Return the partition that a value begins with; another choice is the setting's."""
    assert record.topic == "t"
    assert list(record.partitions) == list(range(PARTITION_COUNT)) == list(record.available)
    assert record.value is not None
    return int(record.value[:1]) if record.value[:1].isdigit() else None


async def test_records_go_where_the_application_says() -> None:
    async with (
        open_test_cluster(settings=WITH_PARTITIONS) as cluster,
        open_producer(cluster.bootstrap, partition_by=by_first_digit) as producer,
    ):
        for value in (b"3 without a key", b"0", b"3", b"2"):
            report = await (await producer.send("t", value))
            assert report.partition == int(value[:1])
        keyed = await (await producer.send("t", b"1 with a key", key=b"k"))
        assert keyed.partition == 1
        given = await (await producer.send("t", b"1", partition=2))
        assert given.partition == 2, "a partition that is given needs no choice"
        unsure = await (await producer.send("t", b"any", key=b"k"))
        async with open_producer(cluster.bootstrap) as plain:
            assert unsure.partition == (await (await plain.send("t", b"", key=b"k"))).partition

        many = await (await producer.send_many("t", [(b"k", b"2 a"), (b"l", b"0"), (b"k", b"2")]))
        assert {batch.partition: len(batch.positions) for batch in many} == {2: 2, 0: 1}
        keyless = await (await producer.send_many("t", [b"1", b"1", b"3"]))
        assert {batch.partition: len(batch.positions) for batch in keyless} == {1: 2, 3: 1}


async def test_a_partition_that_is_not_there_is_refused(ottla_cluster: ClusterUnderTest) -> None:
    async with open_producer(ottla_cluster.bootstrap, partition_by=lambda _: 7) as producer:
        with pytest.raises(RefusedError) as refused:
            await producer.send("t", b"v")
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(RefusedError):
            await producer.send_many("t", [b"v"])


async def test_what_the_partitioner_raises_comes_out_of_send(
    ottla_cluster: ClusterUnderTest,
) -> None:
    def fail(record: UnplacedRecord) -> int:
        raise LookupError(record.topic)

    async with open_producer(ottla_cluster.bootstrap, partition_by=fail) as producer:
        with pytest.raises(LookupError):
            await producer.send("t", b"v")
        assert (await (await producer.send("t", b"v", partition=0))).offset == 0


async def test_a_consumer_starts_at_the_records_of_a_duration(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        now_ms = time.time_ns() // 1_000_000
        for age_s in (7_200, 3_000, 0):
            value, stamp_ms = str(age_s).encode(), now_ms - age_s * 1_000
            await (await producer.send("t", value, timestamp_ms=stamp_ms))
    for duration, values in (("PT1H", [b"3000", b"0"]), ("PT3H", [b"7200", b"3000", b"0"])):
        config = ConsumerConfig(auto_offset_reset=f"by_duration:{duration}")
        async with open_consumer(ottla_cluster.bootstrap, config) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            found: list[bytes | None] = []
            while len(found) < len(values):
                found += [record.value for record in await consumer.poll(10)]
            assert found == values


async def test_an_asyncio_producer_takes_a_partitioner() -> None:
    async with open_test_cluster(settings=WITH_PARTITIONS) as cluster:
        found: list[int] = []

        async def produce() -> None:
            async with aio.open_producer(
                cluster.bootstrap, partition_by=by_first_digit
            ) as producer:
                found.extend(
                    [(await (await producer.send("t", value))).partition for value in (b"3", b"1")]
                )

        await trio.to_thread.run_sync(asyncio.run, produce())
        assert found == [3, 1]
