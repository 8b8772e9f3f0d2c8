"""A topic in an object store, on real processes: librdkafka reads records that no broker's disk has
any longer, also after a kill, and the topic's deletion empties the store."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        find_spec("obstore") is None, reason="needs obstore: pip install -e '.[tiered]'"
    ),
]

Processes = Any  # the class of the fixtures, in conftest.py
TOPIC = "tiered"
STEP = 200
RECORD_BYTES = 10_000
SEGMENT_BYTES = 1 << 20
METADATA = "rlmm_config_remote_log_metadata_topic_"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir()
    return path


@pytest.fixture
def cluster(plan_cluster: Callable[..., Processes], store: Path) -> Processes:
    processes: Processes = plan_cluster(
        remote_log_storage_system_enable="true",
        remote_log_storage_uri=f"file://{store}",
        remote_log_manager_task_interval_ms="200",
        log_retention_check_interval_ms="200",
        **{f"{METADATA}num_partitions": "1", f"{METADATA}replication_factor": "1"},
        **{f"{METADATA}min_isr": "1"},
    )
    processes.start("controller", "broker")
    processes.wait_healthy()
    return processes


def values(first: int, end: int) -> list[bytes]:
    return [(b"%09d " % number * (RECORD_BYTES // 10)) for number in range(first, end)]


def read(cluster: Processes, count: int) -> list[bytes]:
    consumer = Consumer(
        {**cluster.client, "group.id": "tier", "fetch.message.max.bytes": SEGMENT_BYTES // 2}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []

    def polled() -> bool:
        for message in consumer.consume(count, 1):
            assert message.error() is None, message.error()
            assert message.offset() == len(found)
            found.append(message.value())
        return len(found) >= count

    cluster.wait_for(polled, "all records")
    consumer.close()
    return found


def test_records_are_read_from_the_object_store(cluster: Processes, store: Path) -> None:
    admin = AdminClient(dict(cluster.client))
    settings = {
        "remote.storage.enable": "true",
        "segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": str(SEGMENT_BYTES),
        "file.delete.delay.ms": "0",
    }
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(30)
    producer = Producer({**cluster.client, "acks": "all", "batch.size": 50_000})
    count = 0

    def append() -> None:
        nonlocal count
        for value in values(count, count + STEP):
            producer.produce(TOPIC, value)
        assert producer.flush(60) == 0
        count += STEP

    append()
    (directory,) = cluster.plan.directory.rglob(f"{TOPIC}-0")
    first = directory / "00000000000000000000.log"

    # A new log closes its first segment only once the name of its directory is durable.
    def is_first_deleted() -> bool:
        if len(list(directory.glob("*.log"))) < 3:
            append()
        return not first.exists()

    cluster.wait_for(is_first_deleted, "deletion of the first local segment")
    assert list(store.rglob("*.manifest.json"))
    assert read(cluster, count) == values(0, count)

    cluster.kill("broker")
    cluster.start("broker")
    cluster.wait_healthy()
    assert read(cluster, count) == values(0, count)

    admin.delete_topics([TOPIC])[TOPIC].result(30)
    cluster.wait_for(lambda: not list(store.rglob("*.log")), "deletion of the objects")
    assert [path.name for path in store.rglob("*") if path.is_file()] == ["cluster.json"]
