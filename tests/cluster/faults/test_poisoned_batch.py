"""A batch that was damaged on its leader's disk stops the copying of one partition, no process."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = pytest.mark.cluster

TOPIC = "t"
POISONED = 0
ASSIGNED = [[1, 2], [1, 2], [1, 3], [3, 2]]
ONE_IS_ENOUGH = {"min.insync.replicas": "1"}
SHORT_SESSION = {"broker_session_timeout_ms": "2000", "broker_heartbeat_interval_ms": "500"}


def write(cluster: Any, text: bytes) -> None:
    """Write a record to each partition and wait for every acknowledgement."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 20_000})
    refusals: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            refusals.append(f"partition {message.partition()}: {error}")

    for partition in range(len(ASSIGNED)):
        producer.produce(TOPIC, text, partition=partition, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert refusals == []


def flip_the_last_byte(log: Path) -> None:
    """Damage the last batch of a segment in place, as a bad disk would."""
    with log.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-2, os.SEEK_END)
        file.write(bytes([byte ^ 0xFF]))


def test_a_poisoned_batch_sets_one_partition_aside_with_its_reason_and_ends_no_process(
    plan_cluster: Any,
) -> None:
    cluster = plan_cluster(controllers=3, brokers=3, **SHORT_SESSION)
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(TOPIC, len(ASSIGNED), replica_assignment=ASSIGNED, config=ONE_IS_ENOUGH)
    for future in admin.create_topics([new]).values():
        future.result(timeout=60)
    cluster.wait_healthy()
    write(cluster, b"healthy")
    assert cluster.end("broker 2") == 0
    write(cluster, b"poisoned")
    directory = Path(cluster.node("broker 1").dir)
    flip_the_last_byte(directory / f"{TOPIC}-{POISONED}" / "00000000000000000000.log")
    cluster.start("broker 2")

    def only_one_lags() -> bool:
        found = cluster.status()
        return found["partitions"]["under_replicated"] == 1 and any(
            f"{TOPIC}-{POISONED}" in reason and "broker 2" in reason for reason in found["reasons"]
        )

    cluster.wait_for(only_one_lags, "reason for one partition alone")
    write(cluster, b"after")
    time.sleep(1)  # long enough for the copying to be tried again, and to fail again
    shown = cluster.ottla("status", "--format=json", code=2)
    found = json.loads(shown.stdout)
    assert found["partitions"]["under_replicated"] == 1, found
    assert found["partitions"]["leaderless"] == 0
    said = cluster.log_of("broker 2").read_text()
    assert said.count(f"{TOPIC}-{POISONED} does not follow broker 1") == 1, said[:3_000]
    assert all(child.poll() is None for child in cluster.running.values())
    assert {row["state"] for row in found["brokers"]} == {"RUNNING"}
