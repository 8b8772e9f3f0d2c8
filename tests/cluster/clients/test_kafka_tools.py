"""Kafka's own tools read the files of brokers, and show their log directories.

Runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release.
"""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.bench.kafka.kafka_server import java_program
from tests.cluster.secure_form import SHARED

pytestmark = pytest.mark.cluster

Processes = Any  # the class of the fixture, in conftest.py
JARS = "OTTLA_KAFKA_JARS"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DELETED, TRIMMED = "made-again", "codec-none"
TOPIC_SETTINGS = {
    "segment.bytes": str(1 << 20),
    "index.interval.bytes": "512",
    "file.delete.delay.ms": "100",
}
ROUNDS = 3
RECORDS_PER_ROUND = 6_000
KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
FLAWS = (
    "isvalid: false",
    "Mismatches in",
    " is followed by ",
    "Found timestamp mismatch",
    "Found out of order timestamp",
    "Found invalid",
    "Exception",
    "corrupt",
    "Ignoring unknown file",
)
"""Complaints of DumpLogSegments about a file; it exits with 0 all the same."""

FIRST_OF_SEGMENT = "  -1 is followed by "
"""Output for every segment that does not begin at 0."""

FILES_AT_ONCE = 200
TOOL_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def jars() -> Path:
    found = os.environ.get(JARS)
    if not found:
        pytest.skip(f"LOUD: {JARS} is not set; Kafka's tools were NOT run here")
    return Path(found)


def run_tool(jars: Path, tool: str, *words: str) -> str:
    """Run a tool of Kafka's; return its output."""
    command = [java_program(os.environ), "-cp", f"{jars}/*", f"org.apache.kafka.tools.{tool}"]
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def flaws(jars: Path, files: Sequence[Path], *options: str) -> Iterator[str]:
    """Yield the errors that DumpLogSegments prints for files, each with its file."""
    for first in range(0, len(files), FILES_AT_ONCE):
        some = files[first : first + FILES_AT_ONCE]
        output = run_tool(
            jars, "DumpLogSegments", "--files", ",".join(map(str, some)), *options
        ).splitlines()
        shown = [line for line in output if line.startswith("Dumping ")]
        assert len(shown) == len(some), output[-5:]
        dumped = ""
        for line in output:
            if line.startswith("Dumping "):
                dumped = line
            if any(flaw in line for flaw in FLAWS) and not line.startswith(FIRST_OF_SEGMENT):
                yield f"{dumped}: {line}"


def produce(bootstrap: str, topic: str, codec: str, chance: random.Random) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": 40,
        }
    )
    for number in range(RECORDS_PER_ROUND):
        value = chance.randbytes(chance.randrange(400)) * 2
        producer.produce(
            topic, value, key=str(number % 50), partition=number % 2, headers={"n": str(number)}
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def commit(bootstrap: str, topic: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(100, timeout=30)) == 100
    consumer.commit(asynchronous=False)
    consumer.close()


def all_done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(timeout=60)


class KeptCluster:
    """Two brokers with two log directories each, and their history."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.chance = random.Random(7)
        self.admin = AdminClient({"bootstrap.servers": processes.bootstrap})

    def start(self, name: str) -> None:
        one, two, metadata = self.directories(name)
        self.processes.start(name, log_dirs=f"{one},{two}", metadata_log_dir=str(metadata))

    def directories(self, name: str) -> list[Path]:
        home = Path(self.processes.node(name).dir)
        return [home / "one", home / "two", home / "metadata"] if "broker" in name else [home]

    def create(self, name: str) -> None:
        topic = NewTopic(name, 2, replication_factor=2, config=TOPIC_SETTINGS)
        all_done(self.admin.create_topics([topic]))

    def live(self) -> None:
        """Fill the files with all codecs, several epochs, deletions and moves."""
        for codec in CODECS:
            self.create(f"codec-{codec}")
        self.create(DELETED)
        brokers = self.processes.named("broker")
        for number in range(ROUNDS):
            for codec in CODECS:
                produce(self.processes.bootstrap, f"codec-{codec}", codec, self.chance)
            produce(self.processes.bootstrap, DELETED, "none", self.chance)
            name = brokers[number % 2]
            (self.processes.kill if number % 2 else self.processes.end)(name)
            self.start(name)
            self.processes.wait_healthy()
            path = self.directories(name)[number % 2]
            words = ("topic", "reassign", "--log-dir", f"{name.split()[1]}:{path}", "--execute")
            self.processes.ottla(*words)
        all_done(self.admin.delete_records([TopicPartition(TRIMMED, 0, RECORDS_PER_ROUND)]))
        all_done(self.admin.delete_topics([DELETED], operation_timeout=30))
        self.create(DELETED)
        produce(self.processes.bootstrap, DELETED, "lz4", self.chance)
        commit(self.processes.bootstrap, DELETED)


def files_of(directories: Sequence[Path]) -> list[Path]:
    """Return the files of logs that are neither deleted nor set aside."""
    return sorted(
        path
        for directory in directories
        for path in directory.glob("*-[0-9]*/*")
        if path.suffix in KINDS and path.name != "leader-epoch-checkpoint"
    )


def test_kafkas_tools_accept_every_file_of_brokers_that_lived(
    plan_cluster: Callable[..., Processes], jars: Path
) -> None:
    processes = plan_cluster(
        brokers=2,
        min_insync_replicas="1",
        offsets_topic_num_partitions="2",
        broker_session_timeout_ms="2000",
        broker_heartbeat_interval_ms="400",
        metadata_log_max_record_bytes_between_snapshots="4000",
    )
    cluster = KeptCluster(processes)
    processes.start("controller")
    names = processes.named("broker")
    for name in names:
        cluster.start(name)
    cluster.live()

    login = [] if SHARED is None else ["--command-config", str(SHARED.java_settings)]
    shown = run_tool(
        jars, "LogDirsCommand", "--bootstrap-server", processes.bootstrap, "--describe", *login
    )
    described = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    found = {
        (broker["broker"], directory["logDir"], directory["error"])
        for broker in described["brokers"]
        for directory in broker["logDirs"]
    }
    expected = {
        (int(name.split()[1]), str(path), None)
        for name in names
        for path in cluster.directories(name)[:2]
    }
    assert found == expected

    processes.kill(names[1])
    # Of indexes with room for more the tool reads the room, too, and fails where a log is empty.
    written = [
        path
        for path in files_of(cluster.directories(names[1]))
        if path.suffix in (".log", ".snapshot")
    ]
    assert list(flaws(jars, written, "--deep-iteration")) == []
    cluster.start(names[1])
    processes.wait_healthy()
    processes.stop_all()
    for name in processes.names:
        files = files_of(cluster.directories(name))
        assert {path.suffix for path in files} >= set(KINDS) - {".txnindex"}
        if name in names:
            assert max(Counter(path.parent for path in files if path.suffix == ".log").values()) > 2
        assert list(flaws(jars, files, "--deep-iteration")) == []
        indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
        assert list(flaws(jars, indexes, "--index-sanity-check")) == []
        offsets = [path for path in files if "__consumer_offsets" in str(path)]
        logs = [path for path in offsets if path.suffix == ".log"]
        assert list(flaws(jars, logs, "--offsets-decoder")) == []
