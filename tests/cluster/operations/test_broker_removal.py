"""A broker leaves a cluster of real processes for good, and the cluster is healthy without it."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaProducer

pytestmark = pytest.mark.cluster

Processes = Any  # the class of the fixtures, in conftest.py
NOT_STOPPED = 2


def produce(cluster: Processes) -> None:
    """Write 3 MB, which a slow throttle does not let pass at once."""
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
    for number in range(300):
        producer.send("t", b"v" * 10_000, partition=number % 6)
    producer.flush()
    producer.close()


def stop(cluster: Processes, name: str) -> None:
    process = cluster.running[cluster.full_name(name)]
    cluster.send(name, signal.SIGTERM)
    process.wait(120)


def ids(cluster: Processes) -> list[int]:
    found = json.loads(cluster.ottla("broker", "list", "--format=json").stdout)
    return [row["id"] for row in found]


def test_a_broker_is_removed_and_the_cluster_is_healthy_without_it(
    plan_cluster: Callable[..., Processes],
) -> None:
    cluster = plan_cluster(brokers=3, default_replication_factor="2")
    cluster.start()
    cluster.ottla("topic", "create", "t", "-p", "6")
    assert "is running" in cluster.ottla("broker", "unregister", "3", code=1).stderr
    assert "no broker 9" in cluster.ottla("broker", "unregister", "9", code=1).stderr
    shown = cluster.ottla("broker", "remove", "3", code=2)
    assert "nothing was changed" in shown.stderr
    assert any(3 in replicas for replicas in cluster.replicas("t").values())

    assert "cordoned" not in cluster.ottla("broker", "logdirs", "3").stdout
    first = ("broker", "remove", "3", "--yes", "--stop-timeout=0", "--format=json")
    still = json.loads(cluster.ottla(*first, code=NOT_STOPPED).stdout)
    assert still["moved_partitions"] > 0
    assert not still["unregistered"]
    assert not any(3 in replicas for replicas in cluster.replicas("t").values())

    assert "cordoned" in cluster.ottla("broker", "logdirs", "3").stdout

    stop(cluster, "broker 3")
    again = json.loads(cluster.ottla("broker", "remove", "3", "--yes", "--format=json").stdout)
    assert again == {"id": 3, "moved_partitions": 0, "unregistered": True}
    cluster.wait_for(lambda: ids(cluster) == [1, 2], "list without broker 3")
    assert cluster.ottla("status").stdout.startswith("healthy")

    refusal = cluster.ottla("broker", "remove", "2", "--yes", code=1).stderr
    assert "2 replicas, and only 1 other" in refusal


def test_moves_that_stand_still_end_the_wait_and_a_forced_broker_is_forgotten_at_once(
    plan_cluster: Callable[..., Processes],
) -> None:
    cluster = plan_cluster(brokers=3, default_replication_factor="2", replica_fetch_max_bytes="1")
    cluster.start()
    cluster.ottla("topic", "create", "t", "-p", "6")
    cluster.pause("broker 2")
    silent = cluster.ottla("broker", "remove", "3", "--yes", code=1).stderr
    assert "broker 2 did not report the sizes of its logs" in silent
    cluster.resume("broker 2")
    produce(cluster)
    slow = ("--timeout=1", "--throttle=1")
    late = cluster.ottla("broker", "remove", "3", "--yes", *slow, code=1).stderr
    assert "did not move in time" in late
    assert "t-" in late
    cluster.ottla("cluster", "balance", "--cancel")
    moved = cluster.ottla("broker", "remove", "3", "--yes", "--stop-timeout=0", code=NOT_STOPPED)
    assert "still runs" in moved.stderr

    forced = cluster.ottla("broker", "unregister", "2", "--force", "--yes")

    assert "topic reassign --evacuate 2 --yes' moves them" in forced.stderr
    assert ids(cluster) == [1, 3]
    assert (
        "no broker 2"
        in cluster.ottla("broker", "unregister", "2", "--force", "--yes", code=1).stderr
    )
    cluster.end("broker 2")
    cluster.start("broker 2")
    cluster.wait_for(lambda: ids(cluster) == [1, 2, 3], "list with broker 2, which came back")
    cluster.wait_healthy()
