"""A controller and a broker in one loop, over real sockets and gRPC, used by unmodified clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import aiokafka
import confluent_kafka
import kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.broker_driver import Broker
from ottla.broker.opening_driver import open_broker
from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.network.connection import ConnectionLostError, open_connection
from ottla.controller.main_driver import serve_controller
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.model.settings.resources import ConfigKind
from ottla.node.local.local_nodes_driver import free_port
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import DescribeNodeResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse

T = TypeVar("T")

TIMEOUT_SECONDS = 60


class Cluster(NamedTuple):
    bootstrap: str
    broker: Broker


@asynccontextmanager
async def open_cluster(
    directory: Path,
    watch: Callable[[Broker], Awaitable[None]] | None = None,
    /,
    **settings: str,
) -> AsyncIterator[Cluster]:
    """Run one controller and one broker over a directory, and stop them cleanly.

    `watch` runs beside the broker from before it is ready.
    """
    port = free_port()
    voters = f"101@127.0.0.1:{port}"
    controller_config, _ = load_controller_config(
        {
            "node.id": "101",
            "controller.quorum.voters": voters,
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "metadata.log.dir": str(directory / "controller"),
            **settings,
        }
    )
    broker_config, _ = load_broker_config(
        {
            "node.id": "1",
            "controller.quorum.voters": voters,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory / "broker"),
            # A factor above the broker count leaves no coordinator, and close() waits for one.
            "offsets.topic.replication.factor": "1",
            **settings,
        }
    )
    is_stopping = trio.Event()

    async def run_controller() -> None:
        await serve_controller(controller_config, ready=lambda: None, is_stopping=is_stopping)

    with trio.fail_after(TIMEOUT_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_controller)
            async with open_broker(broker_config) as broker:
                if watch is not None:
                    nursery.start_soon(watch, broker)
                await broker.is_ready.wait()
                host, bound = broker.addresses["PLAINTEXT"]
                yield Cluster(f"{host}:{bound}", broker)
                await broker.leave()
            is_stopping.set()


async def crash(cluster: Cluster) -> None:
    """Drop the broker's process state as kill -9 would: nothing is flushed, reported or marked."""
    cluster.broker.logs.abandon()
    await trio.lowlevel.checkpoint()
    raise CrashError


class CrashError(Exception):
    """The broker died."""


async def in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


async def test_no_answer_of_a_starting_broker_lacks_a_broker(tmp_path: Path) -> None:
    """librdkafka forgets a broker that an answer does not name, and asks none if all are gone."""
    named: list[list[int]] = []

    async def ask_all_the_time(broker: Broker) -> None:
        host, port = broker.addresses["PLAINTEXT"]
        while not (broker.is_ready.is_set() and named):
            # One that does not serve clients yet hangs up.
            with suppress(ConnectionLostError):
                async with open_connection(host, port) as client:
                    answer = await client.request(MetadataRequest(topics=[]), MetadataResponse)
                    named.append([one.node_id for one in answer.brokers])
            await trio.sleep(0)

    async with open_cluster(tmp_path):
        pass
    async with open_cluster(tmp_path, ask_all_the_time):
        while not named:
            await trio.sleep(0.01)
    assert named == [[1]] * len(named)


def create_topic(bootstrap: str, name: str, partition_count: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=partition_count, replication_factor=1, config=config)
    for future in admin.create_topics([topic]).values():
        future.result(60)


def confluent_produce(bootstrap: str, topic: str, count: int, **config: Any) -> None:
    failures: list[str] = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic,
                    key=str(number),
                    value=None if number % 10 == 0 else b"value %d" % number,
                    headers={"n": str(number)},
                    partition=number % 2,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    assert failures == []


def confluent_consume(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in (0, 1)])
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(min(count - len(found), 1_000), timeout=10)
        assert messages, f"only {len(found)} of {count} records came"
        for message in messages:
            assert message.error() is None, message.error()
            found.append(message)
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_confluent_kafka_reads_back_what_it_wrote(tmp_path: Path, codec: str) -> None:
    count = 2_000
    async with open_cluster(tmp_path) as cluster:
        bootstrap = cluster.bootstrap
        await in_thread(lambda: create_topic(bootstrap, "t", 2))
        await in_thread(
            lambda: confluent_produce(
                bootstrap,
                "t",
                count,
                **{"compression.type": codec, "enable.idempotence": True},
            )
        )
        messages = await in_thread(lambda: confluent_consume(bootstrap, "t", count))
    by_partition: dict[int, list[int]] = {0: [], 1: []}
    for message in messages:
        number = int(message.key())
        by_partition[message.partition()].append(number)
        assert message.value() == (None if number % 10 == 0 else b"value %d" % number)
        assert message.headers() == [("n", str(number).encode())]
    assert by_partition == {0: list(range(0, count, 2)), 1: list(range(1, count, 2))}


async def test_kafka_python_creates_a_topic_by_asking_and_seeks_by_time(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        bootstrap = cluster.bootstrap

        def work() -> tuple[list[bytes], int]:
            producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
            for number in range(100):
                producer.send(
                    "t", b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000 + number
                )
            producer.flush(60)
            producer.close(5)
            consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
            partition = kafka.TopicPartition("t", 0)
            consumer.assign([partition])
            by_time = consumer.offsets_for_times({partition: 1_700_000_000_040})
            consumer.seek(partition, by_time[partition].offset)
            values: list[bytes] = []
            while len(values) < 60:
                for records in consumer.poll(5_000).values():
                    values += [record.value for record in records]
            end: int = consumer.end_offsets([partition])[partition]
            consumer.close()
            return values, end

        values, end = await in_thread(work)
    assert values == [b"%d" % number for number in range(40, 100)]
    assert end == 100


async def test_a_clean_restart_keeps_topics_records_and_leadership(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        first = cluster.bootstrap
        await in_thread(lambda: create_topic(first, "t", 2))
        await in_thread(lambda: confluent_produce(first, "t", 100))
    async with open_cluster(tmp_path) as cluster:
        second = cluster.bootstrap
        assert all(directory.was_clean for directory in cluster.broker.logs.directories)
        await in_thread(lambda: confluent_produce(second, "t", 100))
        messages = await in_thread(lambda: confluent_consume(second, "t", 200))
    assert len(messages) == 200


async def test_after_a_crash_every_acknowledged_record_is_there(tmp_path: Path) -> None:
    short = {"broker.session.timeout.ms": "600", "broker.heartbeat.interval.ms": "100"}

    async def produce_and_crash() -> None:
        async with open_cluster(tmp_path, **short) as cluster:
            bootstrap = cluster.bootstrap
            assert not any(one.was_clean for one in cluster.broker.logs.directories)
            if cluster.broker.table.image.topic("t") is None:
                await in_thread(lambda: create_topic(bootstrap, "t", 2))
            await in_thread(lambda: confluent_produce(bootstrap, "t", 500))
            await crash(cluster)

    for _ in range(3):
        with pytest.raises(BaseExceptionGroup) as ended:
            await produce_and_crash()
        assert ended.group_contains(CrashError)
    async with open_cluster(tmp_path, **short) as cluster:
        bootstrap = cluster.bootstrap
        messages = await in_thread(lambda: confluent_consume(bootstrap, "t", 1_500))
    for index in (0, 1):
        numbers = [int(one.key()) for one in messages if one.partition() == index]
        assert numbers == list(range(index, 500, 2)) * 3


def aiokafka_round_trip(bootstrap: str, count: int) -> list[bytes | None]:
    async def work() -> list[bytes | None]:
        values: list[bytes | None] = []
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True
        ) as producer:
            for number in range(count):
                await producer.send("t", b"%d" % number, partition=0)
            await producer.flush()
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition("t", 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            while len(values) < count:
                values.append((await consumer.getone()).value)
        finally:
            await consumer.stop()
        return values

    return asyncio.run(work())


async def test_aiokafka_reads_back_what_it_wrote(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        bootstrap = cluster.bootstrap
        await in_thread(lambda: create_topic(bootstrap, "t", 1))
        values = await in_thread(lambda: aiokafka_round_trip(bootstrap, 500))
    assert values == [b"%d" % number for number in range(500)]


async def test_a_deleted_topic_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        bootstrap = cluster.bootstrap
        await in_thread(lambda: create_topic(bootstrap, "t", 2))
        await in_thread(lambda: confluent_produce(bootstrap, "t", 100))

        def delete() -> None:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for future in admin.delete_topics(["t"]).values():
                future.result(60)

        await in_thread(delete)
        await in_thread(lambda: create_topic(bootstrap, "t", 2))
        await in_thread(lambda: confluent_produce(bootstrap, "t", 10))
        messages = await in_thread(lambda: confluent_consume(bootstrap, "t", 10))
    assert [int(message.key()) for message in messages if message.partition() == 0] == [
        0,
        2,
        4,
        6,
        8,
    ]


async def test_every_flush_is_waited_for_where_the_topic_says_so(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        bootstrap = cluster.bootstrap
        await in_thread(lambda: create_topic(bootstrap, "t", 2, **{"flush.messages": "1"}))
        await in_thread(lambda: confluent_produce(bootstrap, "t", 100))
        for partition in cluster.broker.table:
            assert partition.log is not None
            assert partition.log.recovery_point == partition.log.end_offset == 50


def directory_of(cluster: Cluster, topic: str, index: int) -> str:
    found = cluster.broker.logs.directory_of(TopicPartition(topic, index))
    assert found is not None
    return found.path


async def until_made(cluster: Cluster) -> None:
    """Wait until every announced log exists."""
    while cluster.broker.table.opening:
        await trio.sleep(0.01)


async def test_a_cordoned_directory_takes_no_new_replica_until_it_is_open_again(
    tmp_path: Path,
) -> None:
    first, second = (str(tmp_path / name) for name in ("one", "two"))

    async def set_cordoned(admin: Admin, value: str, count: int) -> None:
        resource = ConfigResource(ConfigKind.BROKER, "1")
        await admin.alter_configs(resource, {"cordoned.log.dirs": value})
        while len(cluster.broker.member.image.brokers[NodeId(1)].cordoned_log_dirs) != count:
            await trio.sleep(0.01)  # until a heartbeat has informed the controller

    async def cordoned(admin: Admin) -> list[str]:
        found = await admin.describe_log_dirs(NodeId(1))
        return [directory.path for directory in found if directory.is_cordoned]

    async with (
        open_cluster(
            tmp_path, **{"log.dirs": f"{first},{second}", "cordoned.log.dirs": second}
        ) as cluster,
        open_admin(cluster.bootstrap) as admin,
    ):
        assert await cordoned(admin) == [second]
        await admin.create_topic("a", partition_count=4)
        await until_made(cluster)
        assert {directory_of(cluster, "a", index) for index in range(4)} == {first}
        await set_cordoned(admin, "*", 2)
        with pytest.raises(RefusedError, match="have all their log directories cordoned"):
            await admin.create_topic("b", partition_count=1)
        assert await cordoned(admin) == [first, second]
        await set_cordoned(admin, first, 1)
        await admin.create_topic("b", partition_count=1)
        await until_made(cluster)
        assert await cordoned(admin) == [first]
        assert directory_of(cluster, "b", 0) == second
        with pytest.raises(RefusedError, match="is not one of"):
            await set_cordoned(admin, "/elsewhere", 1)


async def test_a_log_whose_cleaning_is_given_up_is_a_problem_that_status_shows(
    tmp_path: Path,
) -> None:
    async with open_cluster(tmp_path) as cluster:
        manager = cluster.broker.logs.cleaner.manager
        manager.on_failed(TopicPartition("a", 0), "a batch is damaged", now_ms=0, is_final=True)
        host, _, port = cluster.bootstrap.rpartition(":")
        async with open_connection(host, int(port)) as connection:
            answer = await connection.request(DescribeNodeRequest(), DescribeNodeResponse)
    assert answer.problems == [
        "a-0 is not compacted before 'ottla cleaner retry' or a restart: a batch is damaged"
    ]
