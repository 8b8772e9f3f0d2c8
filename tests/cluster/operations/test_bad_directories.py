"""Invalid starts and full disks: one line with the problem, and no acknowledged record lost."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.cluster.cluster_file import properties_of
from tests.cluster.secure_form import PROTOCOL

pytestmark = pytest.mark.cluster

DISK_BYTES = 16 << 20


def start_in_vain(processes: Any, role: str, **settings: str) -> str:
    """Start a node that cannot start; return its last words."""
    path = properties_of(role, processes.node(role))
    options = [f"--set={key.replace('_', '.')}={value}" for key, value in settings.items()]
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", role, str(path), *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_port_in_use_is_named(fresh: Any) -> None:
    fresh.start("controller")
    with socket.create_server(("127.0.0.1", fresh.node("broker").port)):
        said = start_in_vain(fresh, "broker")
    assert f"127.0.0.1:{fresh.node('broker').port}" in said
    assert "in use" in said


def test_a_controllers_port_in_use_is_named(fresh: Any) -> None:
    with socket.create_server(("127.0.0.1", fresh.node("controller").port)):
        said = start_in_vain(fresh, "controller")
    assert f":{fresh.node('controller').port}" in said


def test_a_directory_of_another_cluster_is_refused(fresh: Any) -> None:
    fresh.start("controller", "broker")
    fresh.end("broker")
    path = Path(fresh.node("broker").dir) / "meta.properties"
    texts = path.read_text().splitlines()
    cluster_id = "cluster.id=" + "A" * 21 + "Q"
    texts = [cluster_id if line.startswith("cluster.id=") else line for line in texts]
    path.write_text("\n".join(texts) + "\n")
    said = start_in_vain(fresh, "broker")
    assert "cluster" in said
    assert str(path.parent) in said


def test_a_directory_of_another_node_is_refused(fresh: Any) -> None:
    fresh.start("controller", "broker")
    fresh.end("broker")
    said = start_in_vain(fresh, "broker", node_id="7")
    assert "node" in said
    assert "7" in said


def test_a_directory_in_use_by_another_process_is_refused(fresh: Any) -> None:
    fresh.start("controller", "broker")
    said = start_in_vain(fresh, "broker", listeners=f"{PROTOCOL}://127.0.0.1:0")
    assert fresh.node("broker").dir in said
    assert "in use" in said


def test_a_bad_value_is_named_with_what_is_allowed(fresh: Any) -> None:
    said = start_in_vain(fresh, "broker", num_partitions="none")
    assert said == "ottla broker: num.partitions: is 'none'; it must be an integer of at least 1"


def test_a_full_disk_refuses_produce_and_loses_nothing(
    fresh: Any, make_small_disk: Callable[[int], Path]
) -> None:
    small_disk = make_small_disk(DISK_BYTES)
    fresh.plan.brokers[0].dir = str(small_disk / "broker-1")
    metadata = small_disk.parent / "metadata"
    fresh.plan.write_properties()
    with properties_of("broker", fresh.node("broker")).open("a") as properties:
        properties.write(f"metadata.log.dir={metadata}\n")
    fresh.start("controller", "broker")
    admin = AdminClient({"bootstrap.servers": fresh.bootstrap})
    for future in admin.create_topics([NewTopic("t", 1)]).values():
        future.result(timeout=60)
    producer = Producer(
        {
            "bootstrap.servers": fresh.bootstrap,
            "message.timeout.ms": 3_000,
            "linger.ms": 0,
            "batch.size": 65_536,
        }
    )
    acknowledged: list[bytes] = []
    refused: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())
        else:
            refused.append(error.name())

    for index in range(400):
        producer.produce("t", b"%06d" % index + os.urandom(50_000), on_delivery=delivered)
        producer.poll(0.01)
        if refused:
            break
    producer.flush(60)
    assert acknowledged
    assert refused, "the disk never filled"
    assert len(admin.list_topics(timeout=60).topics) >= 1, "the broker still serves others"

    fresh.kill("broker")
    subprocess.run(["mount", "-o", f"remount,size={4 * DISK_BYTES}", str(small_disk)], check=True)
    fresh.start("broker")
    consumer = Consumer({"bootstrap.servers": fresh.bootstrap, "group.id": "g"})
    at = TopicPartition("t", 0, 0)
    _, end = consumer.get_watermark_offsets(at, timeout=60)
    consumer.assign([at])
    found: list[bytes] = []
    while len(found) < end:
        messages = consumer.consume(min(1_000, end - len(found)), timeout=20)
        assert messages
        found += [message.value() for message in messages]
    consumer.close()
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found))
