"""A Kafka Streams application keeps its state in a compacted changelog, and restores it from there.

Runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release that has
kafka-streams, too; it is compiled by the JDK that runs it.
"""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.bench.kafka.kafka_server import java_program
from tests.cluster.secure_form import java_login

pytestmark = pytest.mark.cluster

Processes = Any  # the class of the fixture, in conftest.py
JARS = "OTTLA_KAFKA_JARS"
APPLICATION = Path(__file__).with_name("StateStore.java")
TOPIC, CHANGELOG = "words", "counter-counts-changelog"
RECORDS, KEYS = 6_000, 20
APPLICATION_TIMEOUT_S = 120.0
COMPACTION_TIMEOUT_S = 60.0


@pytest.fixture
def jars() -> Path:
    found = os.environ.get(JARS)
    if not found or not list(Path(found).glob("kafka-streams-*.jar")):
        pytest.skip(f"LOUD: {JARS} names no kafka-streams; Kafka Streams was NOT run here")
    return Path(found)


def fill(bootstrap: str) -> Counter[str]:
    """Write records with few keys; return the number of records of each key."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 1)]).values():
        future.result(timeout=60)
    producer = Producer({"bootstrap.servers": bootstrap})
    written: Counter[str] = Counter()
    for number in range(RECORDS):
        key = f"k{number * number % KEYS}"
        producer.produce(TOPIC, b"v", key=key)
        written[key] += 1
    assert producer.flush(60) == 0
    return written


def run_application(jars: Path, bootstrap: str, state: Path) -> tuple[int, Counter[str]]:
    """Run the application until it has counted all records; return the number restored, and its
    counts."""
    words = [bootstrap, TOPIC, str(RECORDS), str(state)]
    flags = ["-Xmx256m", *java_login()]
    done = subprocess.run(
        [java_program(os.environ), *flags, "-cp", f"{jars}/*", str(APPLICATION), *words],
        capture_output=True,
        text=True,
        timeout=APPLICATION_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done
    lines = [line.split() for line in done.stdout.splitlines()]
    (restored,) = (int(line[1]) for line in lines if line[:1] == ["restored"])
    return restored, Counter({line[1]: int(line[2]) for line in lines if line[:1] == ["count"]})


def records_left(bootstrap: str) -> int:
    """Return the number of records in the changelog."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "count", "enable.partition.eof": True}
    )
    try:
        consumer.assign([TopicPartition(CHANGELOG, 0, 0)])
        count = 0
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is None:
                count += 1
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return count
    finally:
        consumer.close()


def test_a_state_store_is_restored_from_a_compacted_changelog(
    plan_cluster: Callable[..., Processes], jars: Path, tmp_path: Path
) -> None:
    processes = plan_cluster(
        brokers=1, log_cleaner_backoff_ms="500", group_initial_rebalance_delay_ms="0"
    )
    processes.start()
    bootstrap = processes.bootstrap
    written = fill(bootstrap)

    restored, counts = run_application(jars, bootstrap, tmp_path / "first")
    assert (restored, counts) == (0, written)

    ends_at = time.monotonic() + COMPACTION_TIMEOUT_S
    while (left := records_left(bootstrap)) > RECORDS // 4:
        assert time.monotonic() < ends_at, f"{left} of {RECORDS} records are left"
    restored, counts = run_application(jars, bootstrap, tmp_path / "second")

    assert counts == written
    assert 0 < restored <= left
