"""`ottla cleaner` on real processes: passes on demand, a damaged log, a stopped broker."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = pytest.mark.cluster

TOPIC, KEY_COUNT, RECORD_COUNT = "state", 50, 20_000
GROUP_COUNT, COMMIT_COUNT, NOTE = 4, 400, "x" * 3_000
SEGMENT_BYTES = 1 << 20
"""The least that a topic takes."""


def create(bootstrap: str, replica_count: int) -> None:
    topic = NewTopic(TOPIC, 1, replica_count, config={"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([topic]).values():
        future.result(timeout=60)


def fill(bootstrap: str) -> dict[bytes, bytes]:
    """Write values of some keys; return the last of each."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    last = {}
    for number in range(RECORD_COUNT):
        key, value = b"key-%d" % (number % KEY_COUNT), b"value-%d" % number
        producer.produce(TOPIC, key=key, value=value)
        last[key] = value
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return last


def read(bootstrap: str) -> tuple[int, dict[bytes, bytes]]:
    """Return how many records there are, and the last value of each key."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    count, values = 0, {}
    while (message := consumer.poll(30)) is not None and message.error() is None:
        count += 1
        values[message.key()] = message.value()
    assert message is not None
    consumer.close()
    return count, values


def rows(cluster: Any, *words: str, code: int = 0) -> Any:
    return json.loads(cluster.ottla("cleaner", *words, "--format", "json", code=code).stdout)


def logs_of(cluster: Any) -> list[dict[str, Any]]:
    return [log for broker in rows(cluster, "status", TOPIC) for log in broker["logs"]]


def test_a_pass_on_demand_compacts_every_replica_and_keeps_the_last_values(
    plan_cluster: Any,
) -> None:
    cluster = plan_cluster(brokers=2)
    cluster.start()
    create(cluster.bootstrap, 2)
    last = fill(cluster.bootstrap)

    def all_known_committed() -> bool:
        return all("active segment" in (log["reason"] or "") for log in logs_of(cluster))

    cluster.wait_for(all_known_committed, "followers that know what is committed")
    passes = rows(cluster, "run", f"{TOPIC}:0")

    assert [(one["broker"], one["outcome"]) for one in passes] == [
        (1, "compacted"),
        (2, "compacted"),
    ]
    assert all(one["pass"]["written_record_count"] == KEY_COUNT for one in passes)
    assert read(cluster.bootstrap) == (KEY_COUNT, last)
    cluster.end("broker 2")
    gone = cluster.ottla("cleaner", "run", TOPIC, code=3)
    assert gone.stdout.splitlines()[1].split()[:3] == [TOPIC, "0", "1"]
    assert gone.stderr.startswith("ottla cleaner: broker 2: cannot connect to ")
    assert len(gone.stderr.splitlines()) == 1


def test_a_damaged_log_is_set_aside_with_its_place_and_compacted_once_it_is_mended(
    fresh: Any,
) -> None:
    fresh.start()
    create(fresh.bootstrap, 1)
    last = fill(fresh.bootstrap)
    folder = Path(fresh.node("broker").dir) / f"{TOPIC}-0"
    (segment,) = folder.glob("*.log")
    at = segment.stat().st_size // 2

    def flip() -> None:
        with segment.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))

    flip()
    (failed,) = rows(fresh, "run", TOPIC, code=2)
    assert failed["outcome"] == "set aside"
    assert str(segment) in failed["reason"]
    assert not list(folder.glob("*.cleaned"))
    assert segment.stat().st_size > at
    shown = fresh.ottla("cleaner", "status", "--failed", code=2).stdout
    # The path is longer than its column, and continues on the next lines.
    assert str(segment) in "".join(shown.split())
    assert f"{TOPIC}-0 is not compacted before 'ottla cleaner retry'" in " ".join(
        fresh.status()["reasons"]
    )

    flip()
    (retried,) = rows(fresh, "retry")
    assert retried["outcome"] == "tried again"

    def compacted() -> bool:
        (log,) = logs_of(fresh)
        return log["last_pass"] is not None

    fresh.wait_for(compacted, "a compacted log")
    assert read(fresh.bootstrap) == (KEY_COUNT, last)
    assert fresh.ottla("cleaner", "status").returncode == 0
    fresh.stop_all()
    assert "cannot connect" in fresh.ottla("cleaner", "status", code=3).stderr


def test_the_offsets_topic_stays_small_and_a_killed_broker_knows_every_commit(
    fresh: Any,
) -> None:
    settings = {
        "offsets_topic_num_partitions": "1",
        "offsets_topic_replication_factor": "1",
        "offsets_topic_segment_bytes": str(SEGMENT_BYTES),
        "log_cleaner_backoff_ms": "100",
    }
    fresh.start("controller")
    fresh.start("broker", **settings)
    create(fresh.bootstrap, 1)
    config = {"bootstrap.servers": fresh.bootstrap, "enable.auto.commit": False}
    consumers = [Consumer({**config, "group.id": f"group-{at}"}) for at in range(GROUP_COUNT)]
    for number in range(1, COMMIT_COUNT + 1):
        at = TopicPartition(TOPIC, 0, number, NOTE)
        for consumer in consumers:
            consumer.commit(offsets=[at], asynchronous=number < COMMIT_COUNT)
    for consumer in consumers:
        consumer.close()
    folder = Path(fresh.node("broker").dir) / "__consumer_offsets-0"

    def size() -> int:
        return sum(path.stat().st_size for path in folder.glob("*.log"))

    def clean_end() -> int:
        (broker,) = rows(fresh, "status", "__consumer_offsets")
        return int(broker["logs"][0]["first_dirty_offset"])

    # What was appended is many times what the topic may hold: the active segment, and little else.
    # The progress of a pass is reported after its files are in place.
    # A pass has a low priority, and may wait for a busy machine.
    fresh.wait_for(
        lambda: clean_end() * len(NOTE) > 3 * SEGMENT_BYTES, "a pass over most of it", 240
    )
    fresh.wait_for(lambda: size() < 2 * SEGMENT_BYTES, "a small log")
    fresh.end("broker", signal.SIGKILL)
    fresh.start("broker", **settings)
    for at in range(GROUP_COUNT):
        reader = Consumer({**config, "group.id": f"group-{at}"})
        (found,) = reader.committed([TopicPartition(TOPIC, 0)], timeout=30)
        assert found.offset == COMMIT_COUNT
        reader.close()
