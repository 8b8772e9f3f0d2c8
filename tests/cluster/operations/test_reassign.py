"""Partitions move between brokers while clients write: nothing is lost, nothing stays behind."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaConnectionError, UnknownBrokerIdError

pytestmark = pytest.mark.cluster

Processes = Any  # the classes of the fixtures, in conftest.py
Load = Any
T = TypeVar("T")

PARTITION_COUNT = 4
RATE = 2_000
TARGETS = ((3, 4), (1, 4), (2, 1), (4, 2, 3), (1,), (2, 3))
"""Replicas of all partitions in turn: on other brokers, partly the same, more, and fewer."""


@pytest.fixture(scope="module")
def cluster(plan_module_cluster: Callable[..., Processes]) -> Processes:
    processes = plan_module_cluster(
        brokers=4,
        min_insync_replicas="1",
        log_segment_delete_delay_ms="100",
        # A killed broker may come back when its old session has ended.
        broker_session_timeout_ms="2000",
        broker_heartbeat_interval_ms="400",
    )
    processes.start()
    return processes


class Admin:
    """kafka-python's admin client, replaced whenever the broker it sends to has died.

    It permanently keeps the controller of its first response, and in a cluster with KRaft that may
    be any broker.
    """

    def __init__(self, cluster: Processes) -> None:
        self._cluster = cluster
        self._kafka = self._opened()

    def _opened(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self._cluster.bootstrap)

    def close(self) -> None:
        self._kafka.close()

    def ask(self, question: Callable[[KafkaAdminClient], T]) -> T:
        deadline = time.monotonic() + 60
        while True:
            try:
                return question(self._kafka)
            except (KafkaConnectionError, UnknownBrokerIdError):
                assert time.monotonic() < deadline
                time.sleep(0.1)
                self._kafka.close()
                self._kafka = self._opened()


@pytest.fixture
def kafka(cluster: Processes) -> Iterator[Admin]:
    admin = Admin(cluster)
    yield admin
    admin.close()


def ongoing(kafka: Admin) -> list[TopicPartition]:
    return sorted(kafka.ask(KafkaAdminClient.list_partition_reassignments))


def reassign(kafka: Admin, topic: str, replicas: tuple[int, ...] | None) -> None:
    wanted = None if replicas is None else list(replicas)
    moves = {TopicPartition(topic, index): wanted for index in range(PARTITION_COUNT)}
    kafka.ask(lambda client: client.alter_partition_reassignments(moves))


def holders(kafka: Admin, topic: str) -> dict[int, set[int]]:
    """Return the partitions of a topic on each broker's disk."""
    return {
        broker["broker"]: {
            row["partition_index"]
            for directory in broker["log_dirs"]
            for found in directory["topics"]
            if found["name"] == topic
            for row in found["partitions"]
        }
        for broker in kafka.ask(KafkaAdminClient.describe_log_dirs)
    }


def all_on(*replicas: int) -> dict[int, list[int]]:
    return {index: list(replicas) for index in range(PARTITION_COUNT)}


def create(cluster: Processes, topic: str) -> None:
    cluster.ottla("topic", "create", topic, "-p", str(PARTITION_COUNT), "-r", "2")


def wait_moved(cluster: Processes, kafka: Admin, topic: str, target: tuple[int, ...]) -> None:
    """Wait until the controller has no move under way, then until the brokers tell its outcome."""
    cluster.wait_for(lambda: not ongoing(kafka), f"a move to {target}")
    cluster.wait_for(lambda: cluster.replicas(topic) == all_on(*target), "what it came to", 5)


def test_a_topic_that_moves_again_and_again_under_load_keeps_every_record(
    cluster: Processes, kafka: Admin, start_load: Callable[..., Load]
) -> None:
    create(cluster, "moved")
    load = start_load(cluster, "moved", rate=RATE)
    for target in TARGETS * 2:
        load.mark(f"to {target}")
        reassign(kafka, "moved", target)
        wait_moved(cluster, kafka, "moved", target)
        assert set(cluster.leaders("moved").values()) <= set(target)
    assert load.stop().is_clean
    everything = set(range(PARTITION_COUNT))
    expected = {broker: everything if broker in TARGETS[-1] else set() for broker in range(1, 5)}
    cluster.wait_for(lambda: holders(kafka, "moved") == expected, "replicas where they belong")
    cluster.wait_healthy()


@pytest.mark.parametrize("victim", [1, 3], ids=["who goes", "who comes"])
def test_a_broker_that_dies_during_a_reassignment_loses_no_record(
    cluster: Processes, kafka: Admin, start_load: Callable[..., Load], victim: int
) -> None:
    topic = f"torn-{victim}"
    create(cluster, topic)
    reassign(kafka, topic, (1, 2))
    cluster.wait_for(lambda: not ongoing(kafka), "the place to begin from")
    load = start_load(cluster, topic, rate=RATE)
    for target in ((3, 4), (1, 2)):
        load.mark(f"to {target}, broker {victim} dies")
        reassign(kafka, topic, target)
        cluster.kill(f"broker {victim}")
        cluster.start(f"broker {victim}")
        wait_moved(cluster, kafka, topic, target)
        cluster.wait_healthy()
    assert load.stop().is_clean


def test_a_move_to_a_broker_that_is_away_waits_and_can_be_cancelled(
    cluster: Processes, kafka: Admin
) -> None:
    create(cluster, "stuck")
    before = cluster.replicas("stuck")
    leaders = cluster.leaders("stuck")
    cluster.end("broker 4")
    try:
        reassign(kafka, "stuck", (4,))
        assert ongoing(kafka) == [TopicPartition("stuck", one) for one in range(PARTITION_COUNT)]
        reassign(kafka, "stuck", None)
        assert not ongoing(kafka)
        where = {one: set(nodes) for one, nodes in before.items()}
        cluster.wait_for(
            lambda: {one: set(nodes) for one, nodes in cluster.replicas("stuck").items()} == where,
            "what was before",
            5,
        )
        unmoved = {one: leader for one, leader in leaders.items() if leader != 4}
        assert unmoved.items() <= cluster.leaders("stuck").items()
    finally:
        cluster.start("broker 4")
        cluster.wait_healthy()


def test_a_move_ends_when_the_broker_it_waits_for_is_back(cluster: Processes, kafka: Admin) -> None:
    create(cluster, "late")
    cluster.kill("broker 4")
    reassign(kafka, "late", (4, 1))
    cluster.start("broker 4")
    wait_moved(cluster, kafka, "late", (4, 1))
    cluster.wait_healthy()


def test_the_command_plans_moves_and_waits(
    cluster: Processes, kafka: Admin, tmp_path: Path
) -> None:
    """Broker 4 is emptied of a topic and gets it back, by a file as Kafka's own tool writes it."""
    create(cluster, "planned")
    reassign(kafka, "planned", (4, 1))
    wait_moved(cluster, kafka, "planned", (4, 1))
    leave = ("topic", "reassign", "planned", "--evacuate", "4")
    plan = json.loads(cluster.ottla(*leave, "--dry-run", "--format=json").stdout)
    assert [row["was"] for row in plan] == [[4, 1]] * PARTITION_COUNT
    assert cluster.replicas("planned") == all_on(4, 1)
    assert "4 partitions moved" in cluster.ottla(*leave, "--yes").stderr
    planned = {row["partition"]: row["replicas"] for row in plan}
    cluster.wait_for(lambda: cluster.replicas("planned") == planned, "what was planned", 5)
    assert not any(4 in replicas for replicas in planned.values())
    path = tmp_path / "plan.json"
    cluster.ottla(
        "topic", "reassign", "planned", "--brokers", "1,4", "--dry-run", "--save", str(path)
    )
    cluster.ottla("topic", "reassign", "--plan", str(path), "--yes")
    again = {
        row["partition"]: row["replicas"] for row in json.loads(path.read_text())["partitions"]
    }
    assert all(set(replicas) == {1, 4} for replicas in again.values())
    cluster.wait_for(lambda: cluster.replicas("planned") == again, "what the file says", 5)


def test_the_command_shows_what_is_stuck_and_calls_it_back(
    cluster: Processes, kafka: Admin
) -> None:
    create(cluster, "called-back")
    reassign(kafka, "called-back", (1, 2))
    wait_moved(cluster, kafka, "called-back", (1, 2))
    cluster.end("broker 4")
    try:
        reassign(kafka, "called-back", (1, 4))
        rows = json.loads(cluster.ottla("topic", "reassign", "--format=json").stdout)
        assert [(row["coming"], row["going"]) for row in rows] == [([4], [2])] * PARTITION_COUNT
        away = cluster.ottla("topic", "reassign", "called-back", "--brokers", "4", code=1).stderr
        assert "names 4, not alive here" in away
        cancel = ("topic", "reassign", "called-back", "--cancel", "--format=json")
        rows = json.loads(cluster.ottla(*cancel).stdout)
        assert [(row["was_to_be"], row["replicas"]) for row in rows] == [
            ([1, 4], [1, 2])
        ] * PARTITION_COUNT
        assert not ongoing(kafka)
        assert "nothing moves" in cluster.ottla("topic", "reassign").stderr
    finally:
        cluster.start("broker 4")
        cluster.wait_healthy()


def test_a_throttle_outlives_a_killed_command_until_it_is_verified_away(
    cluster: Processes, kafka: Admin
) -> None:
    cluster.ottla("topic", "create", "slow", "-p", "1", "-r", "1")
    ((source,),) = cluster.replicas("slow").values()
    target = 1 + source % 4
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
    for _ in range(40):
        producer.send("slow", b"v" * 100_000)
    producer.flush()
    producer.close()
    python = (sys.executable, "-m", "ottla.cli", "topic", "reassign", "slow")
    move = (f"--brokers={target}", "--yes", "--throttle=500k")
    command = subprocess.Popen([*python, *move, "--bootstrap", cluster.bootstrap])
    cluster.wait_for(lambda: ongoing(kafka), "the move's begin")
    command.kill()
    command.wait()
    cluster.wait_for(lambda: not ongoing(kafka), "the move's end", 60)
    (warning,) = cluster.status()["warnings"]
    assert "still throttles replication to 500,000 bytes/s" in warning

    verified = cluster.ottla("topic", "reassign", "--verify").stderr

    assert "throttle removed from 1 topic" in verified
    cluster.wait_for(lambda: not cluster.status()["warnings"], "brokers without a throttle")
    cluster.wait_for(lambda: cluster.replicas("slow") == {0: [target]}, "what it came to", 5)
