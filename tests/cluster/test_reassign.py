"""Partitions move between brokers while clients write: nothing is lost, nothing stays behind."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import KafkaConnectionError

pytestmark = pytest.mark.cluster

Processes = Any  # the classes of the fixtures, in conftest.py
Load = Any
T = TypeVar("T")

PARTITION_COUNT = 4
RATE = 2_000
TARGETS = ((3, 4), (1, 4), (2, 1), (4, 2, 3), (1,), (2, 3))
"""Where all partitions go in turn: to other brokers, to some of the same, to more, to fewer."""


@pytest.fixture(scope="module")
def cluster(plan_module_cluster: Callable[..., Processes]) -> Processes:
    processes = plan_module_cluster(
        brokers=4, min_insync_replicas="1", log_segment_delete_delay_ms="100"
    )
    processes.start()
    return processes


def patiently(ask: Callable[[], T]) -> T:
    """Ask again where the client chose a broker that is away."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return ask()
        except KafkaConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def ongoing(kafka: KafkaAdminClient) -> list[TopicPartition]:
    return sorted(patiently(kafka.list_partition_reassignments))


def reassign(kafka: KafkaAdminClient, topic: str, replicas: tuple[int, ...] | None) -> None:
    wanted = None if replicas is None else list(replicas)
    moves = {TopicPartition(topic, index): wanted for index in range(PARTITION_COUNT)}
    patiently(lambda: kafka.alter_partition_reassignments(moves))


def holders(kafka: KafkaAdminClient, topic: str) -> dict[int, set[int]]:
    """Return which partitions of a topic lie on each broker's disk."""
    return {
        broker["broker"]: {
            row["partition_index"]
            for directory in broker["log_dirs"]
            for found in directory["topics"]
            if found["name"] == topic
            for row in found["partitions"]
        }
        for broker in kafka.describe_log_dirs()
    }


def all_on(*replicas: int) -> dict[int, list[int]]:
    return {index: list(replicas) for index in range(PARTITION_COUNT)}


def create(cluster: Processes, topic: str) -> None:
    cluster.ottla("topic", "create", topic, "-p", str(PARTITION_COUNT), "-r", "2")


def wait_moved(
    cluster: Processes, kafka: KafkaAdminClient, topic: str, target: tuple[int, ...]
) -> None:
    """Wait until the controller has no move under way, then until the brokers tell its outcome."""
    cluster.wait_for(lambda: not ongoing(kafka), f"a move to {target}")
    cluster.wait_for(lambda: cluster.replicas(topic) == all_on(*target), "what it came to", 5)


def test_a_topic_that_moves_again_and_again_under_load_keeps_every_record(
    cluster: Processes, kafka: KafkaAdminClient, start_load: Callable[..., Load]
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
def test_a_broker_that_dies_amid_a_move_costs_no_record(
    cluster: Processes, kafka: KafkaAdminClient, start_load: Callable[..., Load], victim: int
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
    cluster: Processes, kafka: KafkaAdminClient
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


def test_a_move_ends_when_the_broker_it_waits_for_is_back(
    cluster: Processes, kafka: KafkaAdminClient
) -> None:
    create(cluster, "late")
    cluster.kill("broker 4")
    reassign(kafka, "late", (4, 1))
    cluster.start("broker 4")
    wait_moved(cluster, kafka, "late", (4, 1))
    cluster.wait_healthy()
