"""One machine with several brokers: rates, CPU time and memory by the number of brokers.

In each round a new cluster with one controller is started for every number of brokers, so that a
machine whose speed changes is the same for all of them. Each broker leads one topic, and has a load
process of its own, so that the loads use other cores than each other. The values show on any
machine up to which number another broker is worth its memory.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from ottla.bench.local_cluster import StartedCluster, open_local_cluster
from ottla.bench.many_partitions import create_topics
from ottla.bench.processes import cpu_seconds, shared_once_bytes
from ottla.bench.result import MB
from ottla.bench.scale.broker_load import READY
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
)

KINDS = ("produce", "fetch", "metadata")
BROKERS_MAX = 64
SETTLE_S = 3.0
"""Seconds after the start until the cluster counts as idle."""
IDLE_S = 3.0
"""Duration in seconds of the measurement of an idle cluster."""
ADDED_TOPICS = 100
LOAD_TIMEOUT_S = 120.0
HEADERS = (
    "BROKERS",
    "MEMORY-MB",
    "IDLE-CPU-%",
    *(f"{kind.upper()}{unit}" for kind in KINDS for unit in ("/S", "-CPU-µS")),
    "TOPIC-CPU-MS",
)

Progress = Callable[[int], None]
HostFigures = dict[str, float]
"""Measured values of one number of brokers, by name. See `measured_host`."""


def broker_counts(text: str) -> list[int]:
    """Return the numbers of brokers in a comma-separated list. Raises ConfigError if one is not a
    number from 1 to `BROKERS_MAX`."""
    try:
        counts = [int(word) for word in text.split(",")]
    except ValueError:
        counts = [0]
    if not all(1 <= count <= BROKERS_MAX for count in counts):
        raise ConfigError("--brokers", f"is {text!r}; use numbers up to {BROKERS_MAX}: 1,2,4")
    return counts


def run_scale(
    counts: Sequence[int], *, requests: int, rounds: int, progress: Progress
) -> dict[int, HostFigures]:
    """Measure each number of brokers in each round. Returns the medians over the rounds by number
    of brokers.

    `requests` is the number of requests of each kind in a round, which the brokers share.
    `progress` receives the number of clusters that are measured.
    """
    found: dict[int, list[HostFigures]] = {count: [] for count in counts}
    for done, count in enumerate(list(found) * rounds, start=1):
        with open_local_cluster(controllers=1, brokers=count) as cluster:
            found[count].append(measured_host(cluster, requests))
        progress(done)
    return {count: _medians_of(measured) for count, measured in found.items()}


def _medians_of(rounds: Sequence[HostFigures]) -> HostFigures:
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}


def measured_host(cluster: StartedCluster, requests: int) -> HostFigures:
    """Measure a new cluster with one or several brokers. Returns its values:

    `memory_mb`: all processes, with each shared page counted once, after the loads.
    `idle_cpu_percent`: CPU time of all nodes without clients, in percent of one core.
    `produce_per_second`, `produce_cpu_us` and so on: rate of all brokers together, and CPU time of
    all nodes for each request.
    `topic_cpu_ms`: CPU time of all nodes for each created topic.
    """
    pids = list(cluster.pids.values())
    time.sleep(SETTLE_S)
    before = cpu_seconds(pids)
    time.sleep(IDLE_S)
    idle = 100 * (cpu_seconds(pids) - before) / IDLE_S
    brokers = sorted(int(name.split()[1]) for name in cluster.pids if name.startswith("broker"))
    topics = {broker: f"ottla-bench-scale-{broker}" for broker in brokers}
    _create(cluster, {name: broker for broker, name in topics.items()})
    for name in topics.values():
        cluster.wait_in_sync(name)
    addresses = dict(zip(brokers, parse_bootstrap(cluster.bootstrap), strict=True))
    share = max(1, requests // len(brokers))
    found: HostFigures = {"idle_cpu_percent": idle}
    for kind in KINDS:
        commands = [
            [":".join(map(str, addresses[broker])), kind, topics[broker], str(share)]
            for broker in brokers
        ]
        seconds, cpu_s = _loaded(commands, lambda: cpu_seconds(pids))
        found[f"{kind}_per_second"] = len(brokers) * share / seconds
        found[f"{kind}_cpu_us"] = 1e6 * cpu_s / (len(brokers) * share)
    before = cpu_seconds(pids)
    added = {
        f"ottla-bench-added-{number}": brokers[number % len(brokers)]
        for number in range(ADDED_TOPICS)
    }
    _create(cluster, added)
    for name in added:
        cluster.wait_in_sync(name)
    found["topic_cpu_ms"] = 1e3 * (cpu_seconds(pids) - before) / ADDED_TOPICS
    found["memory_mb"] = shared_once_bytes(cluster.all_pids) / MB
    return found


def _create(cluster: StartedCluster, leaders: dict[str, int]) -> None:
    """Create topics of one partition with one replica each. `leaders` maps names to brokers."""
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[broker])],
        )
        for name, broker in leaders.items()
    ]
    create_topics(cluster, topics)


def _loaded(loads: Sequence[Sequence[str]], cpu_s: Callable[[], float]) -> tuple[float, float]:
    """Run one load process for each broker, all at the same time. Returns the seconds until the
    last one has ended, and the CPU seconds of the nodes.

    Raises RefusedError if a load fails.
    """
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "ottla.bench.scale.broker_load", *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for arguments in loads
        ]
        for process in processes:
            stack.callback(process.kill)
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "a load did not start")
        before, started = cpu_s(), time.perf_counter()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            if process.wait(LOAD_TIMEOUT_S):
                raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "a load failed")
        return time.perf_counter() - started, cpu_s() - before


def rows_of(found: dict[int, HostFigures]) -> list[list[Any]]:
    """Return the rows of the table with the headers `HEADERS`."""
    rows: list[list[Any]] = []
    for count, figures in found.items():
        row: list[Any] = [count, round(figures["memory_mb"]), round(figures["idle_cpu_percent"], 1)]
        for kind in KINDS:
            row += [round(figures[f"{kind}_per_second"]), round(figures[f"{kind}_cpu_us"], 1)]
        rows.append([*row, round(figures["topic_cpu_ms"], 2)])
    return rows
