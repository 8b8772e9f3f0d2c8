"""Disks that fill up under real nodes: reports to operators and producers, and the recovery.

The volumes are real file systems of a few MiB, filled by a file beside the logs.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At
from prometheus_client.parser import text_string_to_metric_families

from ottla.client import NotDeliveredError, ProducerConfig, open_admin, open_producer
from ottla.node.local.local_nodes_driver import free_port

pytestmark = pytest.mark.cluster

MIB = 1 << 20
DISK_BYTES = 32 * MIB
TOPIC = "orders"
VALUE = b"v" * 10_000
ONCE_EACH = {"disk.filling": 1, "disk.full": 1, "disk.room": 1}
QUICK = {"ottla_disk_check_interval_ms": "200", "log_format": "json"}


def fill(volume: Path, *, leave_bytes: int) -> Path:
    """Fill a volume except for `leave_bytes`; return the file that fills it."""
    filler = volume / "filler"
    free = os.statvfs(volume)
    size = free.f_bavail * free.f_frsize - leave_bytes
    with filler.open("ab") as file:
        file.write(bytes(max(0, size)))
        file.flush()
    return filler


def scrape(port: int) -> dict[tuple[str, str], float]:
    """Return the numbers of directories, by name and path."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as response:
        text = str(response.read(), "utf-8")
    return {
        (
            sample.name.removeprefix("ottla_log_directory_"),
            sample.labels.get("logDirectory", ""),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(("ottla_log_directory_", "ottla_metadata_"))
    }


def logged(processes: Any, name: str) -> str:
    """Return all that a node logged."""
    role, node = name.split()
    path = Path(processes.plan.directory) / "logs" / f"{role}-{node}.log"
    return path.read_text()


def events(processes: Any, name: str) -> Counter[str]:
    """Return how often each event of disks was logged."""
    lines = logged(processes, name).splitlines()
    named = (json.loads(line)["event"] for line in lines if line.startswith("{"))
    return Counter(event for event in named if event.startswith("disk."))


async def place(bootstrap: str, small: str) -> tuple[int, int]:
    """Make the topic; return its partitions in the small and in the roomy directory."""
    async with open_admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, partition_count=2, replication_factor=1)
        with trio.fail_after(60):
            while True:
                described = await admin.describe_log_dirs(1)  # type: ignore[arg-type]
                found = {
                    at.partition: directory.path
                    for directory in described
                    for at in directory.replicas
                    if at.topic == TOPIC
                }
                if len(found) == 2:
                    break
                await trio.sleep(0.05)
    (in_small,) = [index for index, path in found.items() if path == small]
    return in_small, 1 - in_small


async def send(bootstrap: str, partition: int, timeout_ms: int = 60_000) -> int:
    config = ProducerConfig(delivery_timeout_ms=timeout_ms, request_timeout_ms=1_000, linger_ms=0)
    async with open_producer(bootstrap, config) as producer:
        metadata = await (await producer.send(TOPIC, VALUE, partition=partition))
        return int(metadata.offset)


def sent_by_librdkafka(bootstrap: str, partition: int) -> str | None:
    """Produce one record; return the error's name, None when it was delivered."""
    said: list[str | None] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": 3_000, "linger.ms": 0}
    )
    producer.produce(
        TOPIC,
        VALUE,
        partition=partition,
        on_delivery=lambda error, _: said.append(error and error.name()),
    )
    assert producer.flush(30) == 0
    return said[0]


def consumed(bootstrap: str, partition: int, count: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.assign([At(TOPIC, partition, 0)])
    found = consumer.consume(count, timeout=30)
    consumer.close()
    return sum(message.value() == VALUE for message in found)


def test_a_disk_that_fills_up_is_seen_before_during_and_after(
    fresh: Any, make_small_disk: Callable[[int], Path]
) -> None:
    volume, port = make_small_disk(DISK_BYTES), free_port()
    small, roomy = volume / "logs", Path(fresh.node("broker").dir)
    fresh.start("controller")
    fresh.start(
        "broker",
        log_dirs=f"{roomy},{small}",
        metrics_prometheus_port=str(port),
        ottla_disk_warn_free_percent="20",
        **QUICK,
    )
    inside, outside = trio.run(place, fresh.bootstrap, str(small))

    # Enough room: nothing is said of it.
    assert trio.run(send, fresh.bootstrap, inside) == 0
    status = fresh.status()
    assert status["healthy"]
    assert not [warning for warning in status["warnings"] if str(small) in warning]
    assert events(fresh, "broker 1")["disk.full"] == 0

    # Little room: a warning, and all goes on.
    filler = fill(volume, leave_bytes=4 * MIB)
    warned = f"broker 1: log directory {small} fills up (4 MiB of 32 MiB are free"
    # A look at the disk while it is being filled tells of more room.
    fresh.wait_for(lambda: warned in "".join(fresh.status()["warnings"]), "a filling directory")
    status = fresh.status()
    assert status["healthy"]
    (warning,) = [one for one in status["warnings"] if str(small) in one]
    assert warning.startswith(warned)
    assert scrape(port)[("filling", str(small))]
    assert trio.run(send, fresh.bootstrap, inside) == 1

    # None: producers are refused in words, and everything else goes on.
    fill(volume, leave_bytes=0)
    with pytest.raises(NotDeliveredError) as refused:
        trio.run(send, fresh.bootstrap, inside, 2_000)
    assert f"the disk of log directory {small} is full; retry" in refused.value.message
    assert "Errno" not in refused.value.message
    assert sent_by_librdkafka(fresh.bootstrap, inside) in ("_MSG_TIMED_OUT", "KAFKA_STORAGE_ERROR")
    assert trio.run(send, fresh.bootstrap, outside) == 0
    assert consumed(fresh.bootstrap, inside, 2) == 2
    status = fresh.status()
    assert not status["healthy"]
    (reason,) = status["reasons"]
    assert reason.startswith(f"broker 1: log directory {small} is full (0 bytes of 32 MiB are free")
    found = scrape(port)
    assert found[("full", str(small))] == 1
    assert found[("full", str(roomy))] == 0
    assert found[("usable_bytes", str(small))] == 0
    assert found[("used_bytes", str(small))] == found[("total_bytes", str(small))] == DISK_BYTES
    assert found[("refused_writes_total", str(small))] > 0
    (row,) = json.loads(fresh.ottla("broker", "list", "--format", "json").stdout)
    assert row["free_bytes"] == 0
    assert row["bytes"] > 3 * len(VALUE)
    (topic,) = json.loads(fresh.ottla("topic", "list", "--format", "json").stdout)
    assert topic["name"] == TOPIC
    assert topic["bytes"] > 3 * len(VALUE)
    assert "Errno 28" not in logged(fresh, "broker 1")

    # Room again: without a restart.
    filler.unlink()
    assert trio.run(send, fresh.bootstrap, inside) == 2
    fresh.wait_for(lambda: fresh.status()["healthy"], "a healthy cluster")
    assert sent_by_librdkafka(fresh.bootstrap, inside) is None
    fresh.wait_for(lambda: events(fresh, "broker 1") == ONCE_EACH, "line for each change")


def test_the_full_disk_of_a_controller_is_seen_and_passes(
    fresh: Any, make_small_disk: Callable[[int], Path]
) -> None:
    volume, port = make_small_disk(DISK_BYTES), free_port()
    directory = volume / "metadata"
    shutil.move(fresh.node("controller").dir, directory)
    fresh.start(
        "controller",
        metadata_log_dir=str(directory),
        metrics_prometheus_port=str(port),
        **QUICK,
    )
    fresh.start("broker")
    reserve = ("ottla_metadata_reserved_bytes", "")
    fresh.wait_for(lambda: scrape(port)[reserve] == 2 * MIB, "a reserve")
    assert fresh.status()["healthy"]

    filler = fill(volume, leave_bytes=2 * MIB)
    fresh.wait_for(lambda: scrape(port)[("filling", str(directory))], "a filling directory")
    status = fresh.status()
    assert status["healthy"]
    assert [one for one in status["warnings"] if f"{directory} fills up" in one]

    fill(volume, leave_bytes=0)
    fresh.wait_for(lambda: scrape(port)[reserve] < 2 * MIB, "a reserve in use")
    fresh.wait_for(lambda: scrape(port)[("full", str(directory))] == 1, "a full directory")
    reasons = "\n".join(fresh.status()["reasons"])
    assert f"the metadata log's directory {directory} is full" in reasons
    assert "of reserved.space" in reasons
    assert fresh.ottla("topic", "create", "by-the-reserve").returncode == 0

    filler.unlink()
    fresh.wait_for(lambda: fresh.status()["healthy"], "a healthy cluster")
    fresh.wait_for(lambda: scrape(port)[reserve] == 2 * MIB, "a whole reserve")
    fresh.wait_for(lambda: events(fresh, "controller 101") == ONCE_EACH, "line for each change", 20)
