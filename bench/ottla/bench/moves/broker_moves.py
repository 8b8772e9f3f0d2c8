"""Benchmark of a producer's latency while the replicas of another topic move to other brokers.

The cluster has three controllers and four brokers. A topic of 2 GB has two replicas of each
partition, on brokers 1 and 2. A producer in a process of its own writes small requests with
acks=all to a topic on brokers 1, 3 and 4. In each round, the topic of 2 GB is first reassigned to
brokers 3 and 4, then broker 2 is removed. Before and after each of the two, the same producer is
measured without moves.
"""

import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, TypeVar

import trio

from ottla.bench.client_metrics.steady_produce import SteadyProduce
from ottla.bench.load import Load, Progress, produce
from ottla.bench.local_cluster import StartedCluster, open_local_cluster
from ottla.client.admin import Admin, open_admin
from ottla.client.network.cluster import Cluster
from ottla.model.ids import NodeId, TopicPartition

MOVED, WATCHED = "ottla-bench-moved", "ottla-bench-watched"
PARTITION_COUNT, REPLICA_COUNT = 8, 2
RECORD_BYTES = 1_000
RECORD_COUNT = 2_000_000
RATE = 400
"""Number of small produce requests per second, sent one after the other."""

CALM_S = 35.0
"""Seconds in which the producer is measured without moves. During this time, the controllers learn
the usual latency of producers, which the earlier bulk load would otherwise distort."""

MOVING_S = 30.0
"""Maximum seconds for which the producer is measured during one kind of moves."""

POLL_S = 0.2
T = TypeVar("T")
MOVES_END_S = 60.0


def broker_move(rounds: int, progress: Progress) -> dict[str, Any]:
    """Measure a producer's p99 latency while replicas move between brokers. Returns, for each kind
    of moves, the latencies in milliseconds, their ratio, and the moved megabytes per second."""
    found: dict[str, list[dict[str, float]]] = {"reassign": [], "remove": []}
    for number in range(rounds):
        with open_local_cluster(controllers=3, brokers=4) as cluster:
            _create_topics(cluster)
            load = Load(
                bootstrap=cluster.bootstrap,
                topic=MOVED,
                count=RECORD_COUNT,
                record_bytes=RECORD_BYTES,
            )
            produce(load, lambda done: None)
            reassign = ("topic", "reassign", MOVED, "--brokers", "3,4", "--adapt", "--yes")
            found["reassign"].append(_measure(cluster, reassign))
            remove = ("broker", "remove", "2", "--yes", "--stop-timeout", "0")
            found["remove"].append(_measure(cluster, remove))
        progress(number + 1)
    return {
        f"{kind}_{name}": round(median(row[name] for row in rows), 3)
        for kind, rows in found.items()
        for name in rows[0]
    } | {
        f"{kind}_p99_ratio_all": [round(row["p99_ratio"], 3) for row in rows]
        for kind, rows in found.items()
    }


def _measure(cluster: StartedCluster, command: Sequence[str]) -> dict[str, float]:
    """Run a command that moves replicas, and measure the producer before, during and after the
    moves. The last measurement begins when the moves have ended or were cancelled."""
    leader = cluster.leader(WATCHED)
    with SteadyProduce(_address(cluster, leader), WATCHED, RATE) as producer:
        began_at = time.perf_counter()
        time.sleep(CALM_S)
        with _running(cluster, command):
            _wait(lambda: bool(_moving(cluster)), MOVES_END_S)
            moving_from = time.perf_counter()
            stored_bytes = _stored_bytes(cluster)
            _wait(lambda: not _moving(cluster), MOVING_S)
            moving_until = time.perf_counter()
            moved_bytes = _stored_bytes(cluster) - stored_bytes
        with _running(cluster, ("cluster", "balance", "--cancel")) as cancelled:
            cancelled.wait(MOVES_END_S)
        _wait(lambda: not _moving(cluster), MOVES_END_S)
        calm_from = time.perf_counter()
        time.sleep(CALM_S)
        ended_at = time.perf_counter()
    before = producer.p99_ms(began_at, began_at + CALM_S)
    beside = producer.p99_ms(moving_from, moving_until)
    after = producer.p99_ms(calm_from, ended_at)
    return {
        "p99_ms_before": before,
        "p99_ms_moving": beside,
        "p99_ms_after": after,
        "p99_ratio": beside / before,
        "moved_mb_per_s": moved_bytes / 1e6 / (moving_until - moving_from),
        "moving_s": moving_until - moving_from,
    }


def _create_topics(cluster: StartedCluster) -> None:
    async def create(admin: Admin) -> None:
        await admin.create_topic(
            MOVED, partition_count=PARTITION_COUNT, replication_factor=REPLICA_COUNT
        )
        await admin.create_topic(WATCHED, partition_count=1, replication_factor=3)
        # Empty topics move at once.
        placed = {TopicPartition(MOVED, index): [1, 2] for index in range(PARTITION_COUNT)}
        placed[TopicPartition(WATCHED, 0)] = [1, 3, 4]
        await admin.alter_reassignments(placed)

    _with_admin(cluster, create)
    _wait(lambda: not _moving(cluster), MOVES_END_S)
    cluster.wait_in_sync(MOVED)
    cluster.wait_in_sync(WATCHED)


def _moving(cluster: StartedCluster) -> int:
    """Return the number of partitions that currently have a move in progress."""
    return len(_with_admin(cluster, Admin.list_reassignments))


def _stored_bytes(cluster: StartedCluster) -> int:
    """Return the size of all replicas of the moved topic on brokers 3 and 4, in bytes."""

    async def add_up(admin: Admin) -> int:
        wanted = [TopicPartition(MOVED, index) for index in range(PARTITION_COUNT)]
        found = [await admin.describe_log_dirs(NodeId(node), wanted) for node in (3, 4)]
        return sum(
            one.size_bytes for dirs in found for each in dirs for one in each.replicas.values()
        )

    return _with_admin(cluster, add_up)


def _address(cluster: StartedCluster, node: int) -> tuple[str, int]:
    async def find(asked: Cluster) -> tuple[str, int] | None:
        await asked.metadata([])
        return asked.address_of(NodeId(node))

    return cluster.wait_for(find)


def _with_admin(cluster: StartedCluster, ask: Callable[[Admin], Awaitable[T]]) -> T:
    async def body() -> T:
        async with open_admin(cluster.bootstrap) as admin:
            return await ask(admin)

    return trio.run(body)


@contextmanager
def _running(cluster: StartedCluster, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of `ottla` concurrently with the block, and end the command after the block."""
    words = [sys.executable, "-m", "ottla.cli", *command, "--bootstrap", cluster.bootstrap]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.terminate()
        child.wait()


def _wait(ask: Callable[[], bool], timeout_s: float) -> None:
    """Poll until `ask` returns True, or until `timeout_s` seconds have passed."""
    ends_at = time.perf_counter() + timeout_s
    while not ask() and time.perf_counter() < ends_at:
        time.sleep(POLL_S)
