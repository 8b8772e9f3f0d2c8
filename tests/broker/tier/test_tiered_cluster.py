"""A tiered topic of a real cluster, from its first copy to its deletion, with a directory as the
object store."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import confluent_kafka
import pytest
import trio

from ottla.broker.cluster.settings.dynamic_settings import TIER_SETTINGS
from ottla.broker.replicas.partition import Partition
from ottla.client.admin import open_admin
from ottla.client.consumer import open_consumer
from ottla.client.producer import open_producer
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.limits import MIB
from ottla.model.settings.client import ConsumerConfig
from ottla.storage.log.log import Log

pytestmark = pytest.mark.skipif(
    find_spec("obstore") is None, reason="needs obstore: pip install -e '.[tiered]'"
)

TIMEOUT_S = 120
BROKER_COUNT = 3
TOPIC = "orders"
AT = TopicPartition(TOPIC, 0)
COUNT = 350
VALUES = [b"%010000d" % number for number in range(COUNT)]
TOPIC_SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": str(MIB),
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}


def settings_of(store: Path) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.uri": f"file://{store}",
        "remote.log.manager.task.interval.ms": "200",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    }


def replicas_in(cluster: ClusterUnderTest) -> dict[int, Partition]:
    """Return the open replicas of the tiered partition by broker."""
    found = {
        int(node): broker.table.by_name[TOPIC][0]
        for node, broker in cluster.brokers.items()
        if TOPIC in broker.table.by_name
    }
    return {node: replica for node, replica in found.items() if replica.log is not None}


def log_of(replica: Partition) -> Log:
    assert replica.log is not None
    return replica.log


def has_kept_names(replicas: dict[int, Partition]) -> bool:
    """Return whether the directories of both replicas are durable. Until then, a new log puts all
    records into its first segment."""
    return len(replicas) == 2 and not any(log_of(one).names.is_new for one in replicas.values())


async def until(is_done: Callable[[], bool]) -> None:
    while not is_done():
        await trio.sleep(0.05)


async def read_by_ottla(bootstrap: str) -> list[bytes]:
    config = ConsumerConfig(auto_offset_reset="earliest")
    found: list[bytes] = []
    async with open_consumer(bootstrap, config) as consumer:
        consumer.assign([AT])
        while len(found) < COUNT:
            found += [record.value or b"" for record in await consumer.poll()]
    return found


def read_by_librdkafka(bootstrap: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    while len(found) < COUNT and (message := consumer.poll(TIMEOUT_S)) is not None:
        assert message.error() is None
        found.append(message.value() or b"")
    consumer.close()
    return found


async def test_a_topic_lives_in_the_object_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster(broker_count=BROKER_COUNT, settings=settings_of(store)) as cluster,
            open_admin(cluster.bootstrap) as admin,
        ):
            await admin.create_topic(
                TOPIC, partition_count=1, replication_factor=2, configs=TOPIC_SETTINGS
            )
            async with open_producer(cluster.bootstrap) as producer:
                await producer.send(TOPIC, VALUES[0])
                await until(lambda: has_kept_names(replicas_in(cluster)))
                for value in VALUES[1:]:
                    await producer.send(TOPIC, value)
            await until(
                lambda: all(
                    log_of(replica).local_start_offset > COUNT // 2
                    for replica in replicas_in(cluster).values()
                )
            )
            first = replicas_in(cluster)
            assert len(first) == 2
            assert {log_of(replica).log_start_offset for replica in first.values()} == {0}

            assert await read_by_ottla(cluster.bootstrap) == VALUES
            read = await trio.to_thread.run_sync(read_by_librdkafka, cluster.bootstrap)
            assert read == VALUES

            # A new replica begins after the copied segments, and then leads alone.
            (new,) = {int(node) for node in cluster.brokers} - first.keys()
            await admin.alter_reassignments({AT: [new]})
            await until(
                lambda: replicas_in(cluster).keys() == {new} and replicas_in(cluster)[new].is_leader
            )
            log = log_of(replicas_in(cluster)[new])
            assert log.log_start_offset == 0
            assert log.local_start_offset > COUNT // 2
            assert await read_by_ottla(cluster.bootstrap) == VALUES

            await admin.delete_topic(TOPIC)
            await until(lambda: not list(store.rglob("*.log")))
            left = [path.name for path in store.rglob("*") if path.is_file()]
            assert left == ["cluster.json"]


async def test_settings_of_reads_and_copies_change_while_a_broker_runs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    values = {
        "remote.fetch.max.wait.ms": 700,
        "remote.list.offsets.request.timeout.ms": 900,
        "remote.log.index.file.cache.total.size.bytes": 12_345,
        "remote.log.reader.threads": 20,
        "remote.log.manager.copier.thread.pool.size": 5,
        "follower.fetch.last.tiered.offset.enable": True,
    }
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster(broker_count=1, settings=settings_of(store)) as cluster,
            open_admin(cluster.bootstrap) as admin,
        ):
            (broker,) = cluster.brokers.values()
            assert broker.parts.settings.keys() >= TIER_SETTINGS
            with pytest.raises(RefusedError, match=r"half|double"):
                await admin.alter_broker_configs(None, {"remote.log.reader.threads": "100"})

            await admin.alter_broker_configs(
                None, {key: str(value) for key, value in values.items()}
            )

            def in_use() -> dict[str, float]:
                reader = broker.tier._reader
                return {
                    "remote.fetch.max.wait.ms": broker.core.data.fetch.remote_wait_ms,
                    "remote.list.offsets.request.timeout.ms": (
                        broker.core.data.list_offsets.remote_timeout_ms
                    ),
                    "remote.log.index.file.cache.total.size.bytes": (
                        reader._indexes.files.bytes_max
                    ),
                    "remote.log.reader.threads": reader._requests._turns.total_tokens,
                    "remote.log.manager.copier.thread.pool.size": (
                        broker.tier._copy_slots.total_tokens
                    ),
                    "follower.fetch.last.tiered.offset.enable": broker.tier.starts.is_after_last,
                }

            await until(lambda: in_use() == values)
