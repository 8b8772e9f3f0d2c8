"""Benchmarks that start a new cluster of three controllers and three brokers, and kill some of its
nodes.

Each function returns its figures by name: the median over the rounds, and the value of every round.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from ottla.bench.cold_backlog import cold
from ottla.bench.faults.metadata_pause import MetadataPause, metadata_pause
from ottla.bench.instructions import instructions
from ottla.bench.kafka.compaction_beside import compaction
from ottla.bench.load import Load, Progress, library, make_topic, produce
from ottla.bench.local_cluster import StartedCluster, open_local_cluster
from ottla.bench.many_partitions import ManyFailover, kill_leader, make_led_by_one
from ottla.bench.moves.broker_moves import broker_move
from ottla.bench.moves.log_moves import log_move
from ottla.bench.processes import usage_of
from ottla.bench.requests import run_requests
from ottla.bench.result import Result
from ottla.bench.storage import append, partitions, recovery
from ottla.bench.tier.tier_transfer import tier_transfer
from ottla.model.settings.endpoints import parse_bootstrap

Figures = dict[str, Any]

TOPIC = "ottla-bench"
WAYS = (("1", 1), ("all", 1), ("1", 3), ("all", 3))
"""Settings of a topic and its producer to compare, as pairs of (acks, number of replicas)."""

SINGLES = 500
SETTLE_S = 2.0
SETTLED_S = 11.0
"""Seconds between the kill of a controller and the kill of a broker. The time is longer than a
broker session, because a new controller does not fence any broker before one session has passed."""
HEARTBEAT_S = 2.0
BEATS_EVERY_MS = 100
CALM_S = 5.0
LOADED_S = 40.0
"""Duration in seconds of the load during which heartbeats are measured. Nearly all heartbeats in a
broker's statistics are then sent under load."""
CONNECTIONS = 16
IN_FLIGHT = 4
REQUESTS = 150_000


def start(rounds: int, progress: Progress) -> Figures:
    """Measure the start of a cluster. Returns the time in seconds until `ottla up` is ready, and
    the memory in MB of the six idle nodes."""
    seconds: list[float] = []
    for index in range(rounds):
        with open_local_cluster() as cluster:
            seconds.append(cluster.ready_s)
            if index == 0:
                time.sleep(SETTLE_S)
                idle = cluster.rss_mb()
        progress(index + 1)
    return _spread("ready_s", seconds) | {"rss_mb_idle": idle, "rss_mb_idle_sum": _sum(idle)}


def failover(rounds: int, progress: Progress) -> Figures:
    """Measure the time without a leader, as clients see it, after kill -9 of a broker and of a
    controller. Returns the measured values by name.

    In a second cluster, a broker that leads many partitions is killed. In a third one, the active
    controller is killed under a load of metadata changes.
    """
    brokers: list[float] = []
    controllers: list[float] = []
    many: list[ManyFailover] = []
    pauses: list[MetadataPause] = []
    for index in range(rounds):
        with open_local_cluster() as cluster:
            _make_topic(cluster, replicas=3)
            controllers.append(_controller_failover(cluster))
            time.sleep(SETTLED_S)
            brokers.append(_broker_failover(cluster))
        with open_local_cluster() as cluster:
            leader = make_led_by_one(cluster)
            time.sleep(SETTLED_S)
            many.append(kill_leader(cluster, leader))
        with open_local_cluster() as cluster:
            _make_topic(cluster, replicas=3)
            pauses.append(metadata_pause(cluster, TOPIC))
        progress(index + 1)
    return (
        _spread("new_leader_s", brokers)
        | _spread("new_active_controller_s", controllers)
        | _spread("many_partitions_fenced_s", [each.detection_s for each in many])
        | _spread("many_partitions_serve_s", [each.failover_s for each in many])
        | _spread("metadata_pause_s", [each.longest_s for each in pauses])
        | {"metadata_failures": sum(each.failure_count for each in pauses)}
    )


def _broker_failover(cluster: StartedCluster) -> float:
    leader = cluster.leader(TOPIC)
    cluster.wait_in_sync(TOPIC)
    # The kill happens at a random time between two heartbeats, because a session lasts from the
    # last heartbeat on.
    time.sleep(random.uniform(0.0, HEARTBEAT_S))
    started = time.perf_counter()
    cluster.kill(f"broker {leader}")
    cluster.leader(TOPIC, other_than=leader)
    return time.perf_counter() - started


def _controller_failover(cluster: StartedCluster) -> float:
    active = cluster.active_controller()
    started = time.perf_counter()
    cluster.kill(f"controller {active}")
    cluster.active_controller(other_than=active)
    return time.perf_counter() - started


def replication(rounds: int, progress: Progress) -> Figures:
    """Compare acks=1 with acks=all, and one replica with three. Returns the throughput, and the
    latency of single records, by name.

    The combinations take turns within each round, on one cluster, so that other load of the machine
    affects all of them.
    """
    many: dict[str, list[Result]] = {}
    single: dict[str, list[Result]] = {}
    with open_local_cluster() as cluster:
        idle = cluster.rss_mb()
        for index in range(rounds):
            for acks, replicas in WAYS:
                load = _load_of(cluster, acks, replicas)
                make_topic(load)
                cluster.wait_in_sync(load.topic)
                name = f"acks_{acks}_rf_{replicas}"
                single.setdefault(name, []).append(_one_at_a_time(load))
                many.setdefault(name, []).append(produce(load, lambda done: None))
            progress(index + 1)
        loaded = cluster.rss_mb()
    found: Figures = {}
    for name in many:
        found |= _medians(name, many[name], single[name])
    return found | {"rss_mb_idle": idle, "rss_mb_after_load": loaded}


def heartbeat(rounds: int, progress: Progress) -> Figures:
    """Measure the delay of heartbeats while requests keep one broker's event loop busy. Returns the
    measured delays by name."""
    calm: list[float] = []
    busy: list[float] = []
    share: list[float] = []
    for index in range(rounds):
        with open_local_cluster(broker_heartbeat_interval_ms=str(BEATS_EVERY_MS)) as cluster:
            _make_topic(cluster, replicas=1)
            leader = cluster.leader(TOPIC)
            time.sleep(CALM_S)
            calm.append(cluster.metrics(leader)["heartbeat.delay.p99.ms"])
            share.append(_load_one(cluster, leader))
            busy.append(cluster.metrics(leader)["heartbeat.delay.p99.ms"])
        progress(index + 1)
    return (
        _spread("heartbeat_p99_ms_calm", calm)
        | _spread("heartbeat_p99_ms_busy", busy)
        | _spread("cpu_share_busy", share)
    )


def _load_one(cluster: StartedCluster, leader: int) -> float:
    """Keep one broker busy with metadata requests. Returns the fraction of a core's time that the
    broker used.

    The load generator and the broker share the machine. Metadata requests are used because, of all
    requests, they cost the broker most and the sender least.
    """
    addresses = parse_bootstrap(cluster.bootstrap)
    names = [name for name in cluster.pids if name.startswith("broker")]
    name = f"broker {leader}"
    pid = cluster.pids[name]
    before, started = usage_of([pid]), time.perf_counter()
    while time.perf_counter() - started < LOADED_S:
        run_requests(
            addresses[names.index(name)],
            kind="metadata",
            topic=TOPIC,
            count=REQUESTS,
            connections=CONNECTIONS,
            in_flight=IN_FLIGHT,
            progress=lambda done: None,
        )
    used = usage_of([pid]).since(before)
    return (used.user_s + used.system_s) / (time.perf_counter() - started)


def _one_at_a_time(load: Load) -> Result:
    """Send single records, each after the previous acknowledgement. Returns the result with the
    latencies of the records."""
    producer = library("confluent_kafka").Producer(
        {"bootstrap.servers": load.bootstrap, "acks": load.acks, "linger.ms": 0}
    )
    payload = bytes(load.record_bytes)
    latencies: list[float] = []
    started = time.perf_counter()
    for index in range(SINGLES):
        sent = time.perf_counter()
        producer.produce(load.topic, payload, partition=index % load.partitions)
        producer.flush(30)
        latencies.append((time.perf_counter() - sent) * 1e3)
    seconds = time.perf_counter() - started
    # The first records are not counted: their sends also open connections and find the leader.
    return Result(
        "single", SINGLES, SINGLES * load.record_bytes, seconds, latencies[SINGLES // 10 :]
    )


def _load_of(cluster: StartedCluster, acks: str, replicas: int) -> Load:
    return Load(
        bootstrap=cluster.bootstrap,
        topic=f"{TOPIC}-{replicas}",
        count=1_000_000,
        record_bytes=100,
        batch_bytes=131_072,
        acks=acks,
        partitions=12,
        replication_factor=replicas,
    )


def _make_topic(cluster: StartedCluster, *, replicas: int) -> None:
    load = replace(_load_of(cluster, "all", replicas), topic=TOPIC, partitions=1)
    make_topic(load)
    cluster.wait_in_sync(TOPIC)


def _medians(name: str, many: list[Result], single: list[Result]) -> Figures:
    quantiles = {
        quantile: round(median(result.figures()[f"latency_{quantile}_ms"] for result in single), 3)
        for quantile in ("p50", "p99")
    }
    return {
        f"{name}_per_second": round(median(result.count / result.seconds for result in many)),
        **{f"{name}_latency_{quantile}_ms": value for quantile, value in quantiles.items()},
    }


def _spread(name: str, values: list[float]) -> Figures:
    return {
        f"{name}_median": round(median(values), 3),
        f"{name}_all": [round(value, 3) for value in values],
    }


def _sum(rss_mb: dict[str, float]) -> float:
    return round(sum(rss_mb.values()), 1)


MEASUREMENTS: dict[str, Callable[[int, Progress], Figures]] = {
    "start": start,
    "failover": failover,
    "replication": replication,
    "heartbeat": heartbeat,
    "instructions": instructions,
    "append": append,
    "recovery": recovery,
    "partitions": partitions,
    "cold": cold,
    "compaction": compaction,
    "broker-move": broker_move,
    "log-move": log_move,
    "tier-transfer": tier_transfer,
}
"""Functions that measure a local cluster, by their name on the command line."""
