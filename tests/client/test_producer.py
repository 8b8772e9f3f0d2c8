"""The producer against a real broker, and against a proxy that loses its answers."""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import confluent_kafka
import pytest
import trio
from kafka.partitioner.default import DefaultPartitioner

from ottla.client.admin import open_admin
from ottla.client.consumer import open_consumer
from ottla.client.produce.partition_queue import NotDeliveredError
from ottla.client.produce.partitioner import Partitioner
from ottla.client.produce.producer_identities import ProducerIdentities
from ottla.client.producer import Producer, open_producer
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig

T = TypeVar("T")

EARLIEST = ConsumerConfig(auto_offset_reset="earliest")
PARTITION_COUNT = 7
WITH_PARTITIONS = {"num.partitions": str(PARTITION_COUNT)}


async def in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


async def read_all(bootstrap: str, topic: str, partition_count: int = 1) -> dict[int, list[Any]]:
    """Return every record of a topic, by partition."""
    partitions = [TopicPartition(topic, index) for index in range(partition_count)]
    found: dict[int, list[Any]] = {index: [] for index in range(partition_count)}
    with trio.fail_after(60):
        async with open_consumer(bootstrap, EARLIEST) as consumer:
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            while any([await consumer.position(at) < ends[at] for at in partitions]):
                for record in await consumer.poll(1):
                    found[record.partition].append(record)
    return found


def random_keys(count: int, seed: int = 4) -> list[bytes]:
    """Return keys of all lengths, the same for each run."""
    chance = random.Random(seed)
    return [chance.randbytes(chance.randrange(1, 40)) for _ in range(count)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_another_client_reads_what_it_wrote(
    ottla_cluster: ClusterUnderTest, codec: str
) -> None:
    count = 500
    bootstrap = ottla_cluster.bootstrap
    async with open_producer(bootstrap, ProducerConfig(compression_type=codec)) as producer:
        for number in range(count):
            await producer.send(
                "t",
                None if number % 10 == 0 else b"value %d" % number,
                key=b"%d" % number,
                headers=[("n", b"%d" % number), ("null", None)],
                timestamp_ms=1_000 + number,
            )

    def read() -> list[Any]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        found: list[Any] = []
        while len(found) < count:
            found += consumer.consume(count, timeout=5)
        consumer.close()
        return found

    for number, message in enumerate(await in_thread(read)):
        assert message.offset() == number
        assert message.key() == b"%d" % number
        assert message.value() == (None if number % 10 == 0 else b"value %d" % number)
        assert message.headers() == [("n", b"%d" % number), ("null", None)]
        assert message.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_000 + number)


async def test_a_delivery_says_where_the_record_is(ottla_cluster: ClusterUnderTest) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(3)]
        found = [await delivery for delivery in deliveries]

    assert [(one.topic, one.partition, one.offset) for one in found] == [
        ("t", 0, 0),
        ("t", 0, 1),
        ("t", 0, 2),
    ]


@pytest.mark.parametrize("partitioner", list(Partitioner))
async def test_ten_thousand_keys_have_librdkafkas_partitions(partitioner: Partitioner) -> None:
    keys = random_keys(10_000)
    async with open_test_cluster(settings=WITH_PARTITIONS) as cluster:
        bootstrap = cluster.bootstrap

        def theirs() -> dict[bytes, int]:
            found: dict[bytes, int] = {}
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "partitioner": partitioner.value,
                    "queue.buffering.max.messages": 20_000,
                }
            )

            def on_delivery(error: Any, message: Any) -> None:
                assert error is None
                found[message.key()] = message.partition()

            for key in keys:
                producer.produce("theirs", key=key, on_delivery=on_delivery)
            assert producer.flush(60) == 0
            return found

        expected = await in_thread(theirs)
        config = ProducerConfig(partitioner=partitioner.value)
        async with open_producer(bootstrap, config) as producer:
            deliveries = [(key, await producer.send("ours", None, key=key)) for key in keys]
            found = {key: (await delivery).partition for key, delivery in deliveries}
    assert found == expected
    assert set(found.values()) == set(range(PARTITION_COUNT))


class KnownPartitions:
    """The part of the cluster that kafka-python's partitioner uses."""

    def topics(self) -> set[str]:
        return {"t"}

    def partitions_for_topic(self, _: str) -> set[int]:
        return set(range(PARTITION_COUNT))

    available_partitions_for_topic = partitions_for_topic


def test_ten_thousand_keys_have_kafka_pythons_partitions() -> None:
    theirs = DefaultPartitioner()

    for key in random_keys(10_000, seed=5):
        expected = theirs.partition("t", key, key, None, None, KnownPartitions())
        assert Partitioner.MURMUR2_RANDOM.partition_of(key, PARTITION_COUNT) == expected


async def produce_numbers(producer: Producer, count: int) -> None:
    for number in range(count):
        await producer.send("t", b"%d" % number, partition=number % 2)


def assert_each_once_in_order(found: dict[int, list[Any]], count: int) -> None:
    for partition, records in found.items():
        numbers = [int(record.value) for record in records]
        assert numbers == list(range(partition, count, 2))


async def test_answers_that_are_cut_off_make_no_duplicate(behind_proxy: Any) -> None:
    count = 3_000
    chance = random.Random(1)
    config = ProducerConfig(batch_bytes=500, retry_backoff_ms=10)
    async with behind_proxy(chance.random() < 0.3 for _ in range(90)) as (_, known_at, proxy):
        await create_two_partitions(known_at)
        async with open_producer(known_at, config) as producer:
            await produce_numbers(producer, count)
        assert proxy.cut_count > 5
        found = await read_all(known_at, "t", 2)
    assert_each_once_in_order(found, count)


async def test_librdkafka_makes_no_duplicate_either(behind_proxy: Any) -> None:
    count = 1_000
    chance = random.Random(2)
    async with behind_proxy(chance.random() < 0.3 for _ in range(30)) as (_, known_at, proxy):
        await create_two_partitions(known_at)

        def produce() -> None:
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": known_at,
                    "enable.idempotence": True,
                    "batch.num.messages": 20,
                    "linger.ms": 1,
                    "reconnect.backoff.ms": 5,
                    "reconnect.backoff.max.ms": 20,
                    "retry.backoff.ms": 10,
                }
            )
            for number in range(count):
                producer.produce("t", b"%d" % number, partition=number % 2)
            assert producer.flush(60) == 0

        await in_thread(produce)
        assert proxy.cut_count > 2
        found = await read_all(known_at, "t", 2)
    assert_each_once_in_order(found, count)


async def test_without_idempotence_the_same_proxy_makes_duplicates(behind_proxy: Any) -> None:
    config = ProducerConfig(enable_idempotence=False, retry_backoff_ms=10)
    async with behind_proxy() as (_, known_at, proxy):
        async with open_producer(known_at, config) as producer:
            await (await producer.send("t", b"the topic is there"))
            proxy.cuts = itertools.repeat(True, 3)
            await producer.send("t", b"once?")
        found = await read_all(known_at, "t")
    assert [record.value for record in found[0]].count(b"once?") == 4


async def create_two_partitions(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    def create() -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", num_partitions=2, replication_factor=1)])["t"].result(60)

    await in_thread(create)


async def test_send_waits_while_the_buffer_is_full(ottla_cluster: ClusterUnderTest) -> None:
    count = 500
    config = ProducerConfig(buffer_bytes_max=3_000, linger_ms=1_000, batch_bytes=100_000)
    highest = 0
    async with open_producer(ottla_cluster.bootstrap, config) as producer:
        for number in range(count):
            await producer.send("t", b"%d" % number + b"x" * 100)
            highest = max(highest, producer._gathered.buffered_bytes)
    assert 2_000 < highest <= 3_000
    assert len((await read_all(ottla_cluster.bootstrap, "t"))[0]) == count


async def test_a_record_too_large_for_any_request_is_refused_at_once(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(
        ottla_cluster.bootstrap, ProducerConfig(request_bytes_max=1_000)
    ) as producer:
        with pytest.raises(RefusedError) as refused:
            await producer.send("t", b"x" * 1_000)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_what_the_broker_refuses_fails_and_what_follows_is_delivered() -> None:
    async with (
        open_test_cluster(settings={"message.max.bytes": "2000"}) as cluster,
        open_producer(cluster.bootstrap) as producer,
    ):
        await (await producer.send("t", b"the topic is there"))
        bad = await producer.send("t", b"x" * 3_000)
        with pytest.raises(NotDeliveredError) as refused:
            await bad
        good = [await producer.send("t", b"%d" % number) for number in range(3)]
        offsets = [(await one).offset for one in good]
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert not refused.value.may_be_in_log
    assert offsets == [1, 2, 3]


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_a_batch_the_broker_finds_too_large_is_delivered_in_parts(codec: str) -> None:
    chance, count = random.Random(3), 200
    config = ProducerConfig(batch_bytes=50_000, compression_type=codec)
    async with open_test_cluster(settings={"message.max.bytes": "2000"}) as cluster:
        async with open_producer(cluster.bootstrap, config) as producer:
            deliveries = [
                await producer.send("t", b"%d " % number + chance.randbytes(100), partition=0)
                for number in range(count)
            ]
            waiting = [(await delivery).offset for delivery in deliveries]
        found = (await read_all(cluster.bootstrap, "t"))[0]
    assert waiting == list(range(count))
    assert [int((record.value or b"").split()[0]) for record in found] == waiting


async def test_the_end_of_the_block_raises_a_failure_without_a_waiting_task() -> None:
    async with open_test_cluster(settings={"message.max.bytes": "2000"}) as cluster:
        with pytest.raises(NotDeliveredError):
            async with open_producer(cluster.bootstrap) as producer:
                await producer.send("t", b"x" * 3_000)


async def test_an_unknown_topic_is_refused_where_none_is_made_by_asking() -> None:
    async with (
        open_test_cluster(settings={"auto.create.topics.enable": "false"}) as cluster,
        open_producer(cluster.bootstrap, ProducerConfig(block_ms_max=300)) as producer,
    ):
        with pytest.raises(RefusedError) as refused:
            await producer.send("t", b"x")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_keyless_records_fill_batches_and_reach_every_partition() -> None:
    async with open_test_cluster(settings=WITH_PARTITIONS) as cluster:
        by_partition: dict[int, int] = defaultdict(int)
        config = ProducerConfig(batch_bytes=1_000)
        async with open_producer(cluster.bootstrap, config) as producer:
            deliveries = [await producer.send("t", b"x" * 100) for _ in range(2_000)]
            for delivery in deliveries:
                by_partition[(await delivery).partition] += 1
    assert set(by_partition) == set(range(PARTITION_COUNT))
    assert min(by_partition.values()) > 2_000 / PARTITION_COUNT / 3


async def test_without_acks_no_task_waits_and_the_offset_is_unknown(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await producer.send("t", b"the topic is there")
    config = ProducerConfig(acks="0", enable_idempotence=False)
    async with open_producer(ottla_cluster.bootstrap, config) as producer:
        delivery = await producer.send("t", b"x")
        assert (await delivery).offset == -1
    with trio.fail_after(60):
        while len((await read_all(ottla_cluster.bootstrap, "t"))[0]) < 2:
            await trio.sleep(0.05)


async def test_without_an_answer_the_refusal_names_who_was_asked() -> None:
    config = ProducerConfig(block_ms_max=300)
    async with open_producer("127.0.0.1:1", config) as producer:
        with pytest.raises(RefusedError, match=r"127\.0\.0\.1:1") as refused:
            await producer.send("t", b"x")
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_a_producer_that_ends_at_a_failure_refuses_all_that_comes_later(
    ottla_cluster: ClusterUnderTest,
) -> None:
    config = ProducerConfig(batch_bytes=1)
    with pytest.raises(NotDeliveredError, match="a record before it"):
        async with open_producer(ottla_cluster.bootstrap, config, ends_at_failure=True) as producer:
            await (await producer.send("t", b"is there"))
            refused = await producer.send("t", b"from far ahead", timestamp_ms=1 << 50)
            behind = await producer.send("t", b"in flight behind it")
            with pytest.raises(NotDeliveredError, match="INVALID_TIMESTAMP"):
                await refused
            with pytest.raises(NotDeliveredError, match="INVALID_TIMESTAMP"):
                await producer.send("t", b"too late")
            await behind
    found = (await read_all(ottla_cluster.bootstrap, "t"))[0]
    assert [record.value for record in found] == [b"is there"]


async def test_producers_that_follow_each_other_are_one_to_the_broker(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap, identities = ottla_cluster.bootstrap, ProducerIdentities()
    for number in range(3):
        async with open_producer(bootstrap, identities=identities) as producer:
            await producer.send("t", b"%d" % number)
    with pytest.raises(OSError, match="in the middle"):
        async with open_producer(bootstrap, identities=identities) as producer:
            await (await producer.send("t", b"3"))
            raise OSError("in the middle")
    async with (
        open_producer(bootstrap, identities=identities) as producer,
        open_producer(bootstrap, identities=identities) as beside,
    ):
        await producer.send("t", b"4")
        await beside.send("t", b"5")

    at = TopicPartition("t", 0)
    async with open_admin(bootstrap) as admin:
        known = (await admin.describe_producers([at]))[at]
    assert sorted(one.producer_epoch for one in known) == [0, 4]
    found = (await read_all(bootstrap, "t"))[0]
    assert sorted(record.value for record in found) == [b"%d" % number for number in range(6)]


async def test_many_records_go_where_single_ones_go_and_are_reported_by_batch(
    ottla_cluster: ClusterUnderTest,
) -> None:
    keys = random_keys(3_000)
    config = ProducerConfig(batch_bytes=4_000, buffer_bytes_max=20_000)
    async with open_admin(ottla_cluster.bootstrap) as admin:
        for topic in ("one", "many"):
            await admin.create_topic(topic, partition_count=PARTITION_COUNT)
    async with open_producer(ottla_cluster.bootstrap, config) as producer:
        with trio.fail_after(60):
            for key in keys:
                await producer.send("one", b"v" + key, key=key)
            pairs = ((key, b"v" + key) for key in keys)
            reported = await (await producer.send_many("many", pairs))
            with pytest.raises(TypeError, match="records\\[2999\\]"):
                await producer.send_many("many", [b"x"] * 2_999 + ["text"])  # type: ignore[list-item]
            with pytest.raises(RefusedError, match="there is no partition"):
                await producer.send_many("many", [b"x"], partition=99)
    one = await read_all(ottla_cluster.bootstrap, "one", PARTITION_COUNT)
    many = await read_all(ottla_cluster.bootstrap, "many", PARTITION_COUNT)
    for partition in range(PARTITION_COUNT):
        assert [(r.key, r.value) for r in many[partition]] == [
            (r.key, r.value) for r in one[partition]
        ]
    for batch in reported:
        for offset, position in enumerate(batch.positions, batch.offset):
            assert many[batch.partition][offset].key == keys[position]
    assert sorted(at for batch in reported for at in batch.positions) == list(range(3_000))
