"""A cluster of the last release is rolled to this version, back, and forward again, under load.

Until ottla.version is raised, each node can return.  Transactions and groups are served meanwhile,
topics are created and changed by old and new active controllers, and old nodes read the snapshots
that new ones wrote.  Share groups, which only this version has, are turned off for the way back,
and continue afterwards.  Nothing that was acknowledged is lost.  The longest pauses are printed.

Where OTTLA_KAFKA_JARS names the jars of a Kafka release, Java's client also writes and reads, and
writes to a compacted topic.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.cluster.cluster_file import properties_of
from ottla.node.local.local_nodes_driver import NODE_MODULE
from tests.cluster.conftest import IS_FULL, Processes, make_processes
from tests.cluster.transactional_writers import (
    PARTITION_COUNT,
    TIMEOUT_S,
    LibrdkafkaWriter,
    OwnWriter,
    Writer,
)
from tests.cluster.upgrades.group_readers import (
    GroupReader,
    LibrdkafkaReader,
    OwnReader,
    numbers_of,
)
from tests.cluster.upgrades.java_clients import (
    COMPACTED,
    COMPACTED_CONFIG,
    KEY_COUNT,
    JavaReader,
    JavaWriter,
    java_client,
)
from tests.cluster.upgrades.last_release import LastRelease, unpack_last_release
from tests.cluster.upgrades.pauses import Phase, print_pauses
from tests.cluster.upgrades.share_queue import ShareQueue

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

BY_OTTLA, BY_LIBRDKAFKA, BY_JAVA = "by-ottla", "by-librdkafka", "by-java"
TRANSACTION_COUNT = 20
"""Least number of transactions of each writer between two phases."""
SETTINGS: dict[str, Any] = {
    "transaction_state_log_num_partitions": "4",
    "offsets_topic_num_partitions": "4",
    "log_cleaner_backoff_ms": "1000",
    "metadata_log_max_record_bytes_between_snapshots": "4096",
    "metadata_log_max_snapshot_interval_ms": "2000",
}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> LastRelease:
    return unpack_last_release(tmp_path_factory.mktemp("release"))


@pytest.fixture
def cluster(release: LastRelease, tmp_path: Path) -> Iterator[Processes]:
    """Three controllers and three brokers of the last release."""
    processes = make_processes(
        tmp_path / "cluster",
        controllers=3,
        brokers=3,
        are_brokers_super=True,  # cluster.json, from which the release formats, has no other form
        format_with=release.format,
        **SETTINGS,
    )
    processes.environment = release.environment
    try:
        processes.start()
        processes.wait_healthy()
        yield processes
    finally:
        processes.stop_all()


class Roll:
    """The rolls of a cluster, one node at a time, each when the cluster is healthy."""

    def __init__(
        self, cluster: Processes, writers: list[Writer], admin: AdminClient, how: Signals
    ) -> None:
        self.phases: list[Phase] = []
        self._signal = how
        self._cluster = cluster
        self._writers = writers
        self._admin = admin

    def run(self, name: str, environment: dict[str, str] | None, *, roles: Sequence[str]) -> None:
        """End all nodes one by one, the active controller as the last one of its role, start each
        in an environment, and create a topic after each."""
        cluster, phase = self._cluster, Phase(name)
        before = self._newest_snapshot()
        cluster.environment = environment
        for role in roles:
            names = cluster.named(role)
            if role == "controller":
                active = cluster.active_controller()
                names = [*(one for one in names if one != active), active]
            for node in names:
                phase.note(f"end {node}")
                code = cluster.end(node, self._signal)
                phase.note("start")
                cluster.start(node)
                phase.note("serves")
                cluster.wait_healthy()
                phase.note("healthy")
                assert code == (0 if self._signal is SIGTERM else -self._signal), node
                topic = NewTopic(f"{name} {node}".replace(" ", "-"), 2, 3)
                for made in self._admin.create_topics([topic]).values():
                    made.result(TIMEOUT_S)
        for writer in self._writers:
            writer.wait_for_more(TRANSACTION_COUNT)
        assert self._newest_snapshot() > before, "no node of this phase wrote a snapshot"
        phase.note("end")
        self.phases.append(phase)

    def _newest_snapshot(self) -> str:
        """Return the name of the newest snapshot of the metadata, which has its offset."""
        root = self._cluster.plan.directory
        return max(one.name for one in root.rglob("__cluster_metadata-0/*.checkpoint"))


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Command of Java's client; empty without Kafka's jars."""
    return java_client(tmp_path_factory.mktemp("java"))


@pytest.mark.parametrize("how", [SIGTERM, *([SIGKILL] if IS_FULL else [])])
def test_a_cluster_is_rolled_forward_back_and_forward_without_a_loss(
    cluster: Processes,
    release: LastRelease,
    java: list[str],
    how: Signals,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = cluster.client
    admin = AdminClient({**client})
    writers: list[Writer] = [OwnWriter(client, BY_OTTLA), LibrdkafkaWriter(client, BY_LIBRDKAFKA)]
    writers += [JavaWriter(client, BY_JAVA, java)] if java else []
    names = [writer.name for writer in writers]
    topics = [NewTopic(name, PARTITION_COUNT, 3) for name in names]
    topics.append(NewTopic(COMPACTED, 1, 3, config=COMPACTED_CONFIG))
    for made in admin.create_topics(topics).values():
        made.result(TIMEOUT_S)
    groups: dict[str, list[GroupReader]] = {
        "classic": [OwnReader(client, "classic", names, "classic") for _ in range(2)],
        "consumer": [LibrdkafkaReader(client, "consumer", names, "consumer") for _ in range(2)],
    }
    if java:
        groups["java"] = [JavaReader(client, "java", names, "consumer", java)]
    roll = Roll(cluster, writers, admin, how)
    with ExitStack() as running:
        for member in (one for members in groups.values() for one in members):
            running.enter_context(member)
        for writer in writers:
            running.enter_context(writer).wait_for_more(TRANSACTION_COUNT)
        roll.run("controllers forward", None, roles=("controller",))
        unready = cluster.ottla("cluster", "upgrade", "status", code=2).stderr
        assert "Broker 1 does not support this feature." in unready
        roll.run("brokers forward", None, roles=("broker",))
        queue = ShareQueue(cluster, admin, java)
        queue.consume_half_and_turn_off()
        roll.run("back", release.environment, roles=("broker", "controller"))
        roll.run("forward again", None, roles=("controller", "broker"))
        queue.turn_on_and_consume_rest()
        finalise(cluster, release)
    with capsys.disabled():
        times = {writer.name: writer.committed_at for writer in writers}
        for name, members in groups.items():
            times[f"group {name}"] = sorted(one for member in members for one in member.read_at)
        print_pauses(roll.phases, times)
        for writer in writers:
            print(f"{writer.name}: {writer.count} commits, retried after {writer.errors[:20]}")
        print(f"share groups: {queue.duration_s:.0f} s of the test")
    for member in (one for members in groups.values() for one in members):
        assert member.fault is None, member.fault
    if java:
        check_compacted(stored(client, COMPACTED, 0), writers[-1].count)
    for writer in writers:
        assert writer.fault is None, (writer.fault, writer.errors)
        written = list(range(writer.count))
        for partition in range(PARTITION_COUNT):
            assert stored(client, writer.name, partition) == written
            for members in groups.values():
                # The members were stopped first; the last records may be read by none of them.
                read = numbers_of(members, writer.name, partition)
                assert read >= set(written[: max(read, default=0)])
    logs = cluster.plan.directory.glob("*.log")
    assert not [one for one in logs if "Traceback" in one.read_text()]


def check_compacted(found: Sequence[int], count: int) -> None:
    """Assert that a compacted topic has the last number of each key, in order, and few others."""
    assert found == sorted(set(found))
    assert set(found) >= set(range(count)[-KEY_COUNT:])
    assert len(found) < count / 2, f"{len(found)} of {count} records are left"


def finalise(cluster: Processes, release: LastRelease) -> None:
    """Raise the levels, after which a node of the last release is refused."""
    ready = cluster.ottla("cluster", "upgrade", "status").stdout
    assert "before a node returns to release 0.2.0, stop the consumers of share groups" in ready
    cluster.ottla("cluster", "upgrade", "finalize", "--yes")
    name = cluster.named("broker")[0]
    cluster.end(name)
    properties = str(properties_of("broker", cluster.node(name)))
    old = subprocess.run(
        [sys.executable, "-m", NODE_MODULE, "broker", properties],
        env=release.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert old.returncode in (1, 2), old
    # Release 0.2.0 takes a kind of record that it does not know for corrupt data.
    sentences = ("of a kind this release does not know", "start this node with")
    assert any(one in old.stderr for one in sentences), old
    cluster.start(name)
    cluster.wait_healthy()
    assert "nothing is left to finalize" in cluster.ottla("cluster", "upgrade", "status").stdout


def stored(client: Mapping[str, str], topic: str, partition: int) -> list[int]:
    """Return the committed numbers of a partition."""
    consumer = Consumer(
        {
            **client,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            consumer.close()
            return found
        found.append(int(message.value() or b""))
    raise AssertionError(f"{topic}-{partition}: {len(found)} records in {TIMEOUT_S} s")
