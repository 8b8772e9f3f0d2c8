"""Benchmarks of docs/performance.md. A row of the table consists of a load on one cluster and a
goal."""

import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ottla.bench.floor.floor import FloorRow, FloorServer, floor_figures, floor_work
from ottla.bench.groups import run_commits
from ottla.bench.kafka.beside_kafka import wait_until_led
from ottla.bench.kafka.compaction_beside import compact, fill_dirty
from ottla.bench.load import Load, consume, end_to_end, library, make_topic, produce
from ottla.bench.local_cluster import RunningCluster
from ottla.bench.performance.conditions import UNREACHED_QUOTAS, log_bytes, set_quotas
from ottla.bench.processes import cpu_seconds
from ottla.bench.requests import SmallRequest, run_requests
from ottla.bench.result import GB, Result
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_bootstrap

ONE, THREE = "one", "three"
"""Cluster topologies: one controller and one broker with one replica per partition, or three
controllers and three brokers with three replicas."""

KIB, MIB = 1 << 10, 1 << 20
BYTES_OF_A_RUN = 100_000_000
RECORDS_MAX = 400_000
SINGLES = 400
REQUESTS = {(10, 1): 15_000, (50, 5): 40_000}
"""Number of requests in a measurement, by number of connections and number of requests in flight on
each."""
LARGE_REQUESTS = {"produce": 1_500, "fetch": 6_000}
"""Number of requests of 128 KiB in a measurement, by their kind."""
FLOOR_KINDS = ("produce", "fetch")
"""Kinds of small requests that the minimal C program supports as well."""
FEW, MANY = 7, 100
"""Numbers of topics that one request creates or deletes, in the benchmarks of topics."""
ADMIN_TIMEOUT_S = 120.0
PATIENCE_S = 60.0
COMPACTION_TIMEOUT_S = 180.0
DIRTY_RECORDS = 400_000
"""Number of records of 90 B in a log that is compacted while a producer sends."""
SENT_EVERY_S = 0.005
SETTLE_S = 3.0
SETTLED_S = 11.0
"""Seconds between the kill of a controller and the kill of a broker, so that the two failovers are
measured separately. It is longer than a broker session.  Brokers switch to another controller
within a session, and Ottla's controller does not fence any broker before one session has passed
(`ottla.early.failover`)."""
PARTITIONS = {"1,000 partitions": 1_000, "10,000 partitions": 9_000}
"""Number of partitions that are created before each memory benchmark, in addition to existing
partitions, by name of the benchmark."""


class RatioGoal(NamedTuple):
    """Goal of a benchmark: a bound for the ratio of Ottla's median to Kafka's."""

    ratio: float | None
    """Limit of the ratio of the medians: the maximum or the minimum that meets the goal. None if
    there is no goal."""
    is_higher_better: bool

    def is_met_by(self, ratio: float) -> bool:
        """Return whether a ratio of medians meets the goal. Returns False if there is no goal."""
        if self.ratio is None:
            return False
        return ratio >= self.ratio if self.is_higher_better else ratio <= self.ratio

    def __str__(self) -> str:
        if self.ratio is None:
            return "–"
        return f"{'≥' if self.is_higher_better else '≤'} {self.ratio:g}"


_RATES = {
    **{
        f"{what}_{percentile}_ms": RatioGoal(1.0, False)
        for what in ("produce", "end_to_end")
        for percentile in ("p50", "p99", "p99.9")
    },
    "records_per_second": RatioGoal(1.0, True),
    "cpu_us_per_record": RatioGoal(1.0, False),
}

GOALS: dict[str, dict[str, RatioGoal]] = {
    "requests": {
        "requests_per_second": RatioGoal(1.0, True),
        "cpu_us_per_request": RatioGoal(1.0, False),
    },
    "throughput": {"mb_per_second": RatioGoal(1.1, True), "cpu_s_per_gb": RatioGoal(0.7, False)},
    "latency": {"p50_ms": RatioGoal(0.8, False), "p99_ms": RatioGoal(0.5, False)},
    "memory": {
        "shared_once_mb": RatioGoal(0.1, False),
        "resident_mb": RatioGoal(0.1, False),
        "idle_cpu_ms_per_second": RatioGoal(1.0, False),
    },
    "lifecycle": {
        "start_to_ready_s": RatioGoal(0.2, False),
        "broker_killed_to_acknowledged_s": RatioGoal(0.5, False),
        "controller_killed_to_topic_created_s": RatioGoal(0.5, False),
    },
    "rates": _RATES,
    "partitions": {"mb_per_second": RatioGoal(1.0, True), "cpu_s_per_gb": RatioGoal(1.0, False)},
    "connections": _RATES | {"mb_per_second": RatioGoal(None, True)},
    "conditions": {
        "requests_per_second": RatioGoal(None, True),
        "cpu_us_per_request": RatioGoal(None, False),
        "mb_per_second": RatioGoal(None, True),
        "cpu_s_per_gb": RatioGoal(None, False),
    },
    "admin": {"create_s": RatioGoal(1.0, False), "delete_s": RatioGoal(1.0, False)},
    "queues": {
        "records_per_second": RatioGoal(1.0, True),
        "cpu_us_per_record": RatioGoal(1.0, False),
    },
    "programs": _RATES | {"end_to_end_mean_ms": RatioGoal(1.0, False)},
    "client": {
        "cpu_us_per_record": RatioGoal(1.5, False),
        "records_per_second": RatioGoal(1.0, True),
        "thread_share": RatioGoal(None, False),
    },
}
"""Goals for ratios of measured values, by group of benchmarks and name of the value. Goals of the
group `client` are relative to librdkafka. The group `conditions` has no goals."""

Figures = dict[str, float]
Run = Callable[[RunningCluster, int], Figures]
"""Function that makes one measurement on a running cluster. The second argument is the number of
replicas."""


class PerformanceRow(NamedTuple):
    """One benchmark of a group in docs/performance.md: its name, its load, and its preparation."""

    name: str
    run: Run
    prepare: Callable[[RunningCluster, int], None] | None = None
    """Function that prepares the benchmark. It runs once, before the round that warms up the
    servers. None if the benchmark needs no preparation."""
    floor: FloorRow | None = None
    """Requests for a comparison with a minimal C program, which is measured alternately with the
    clusters. None if the program cannot imitate the benchmark's server."""


def _no_progress(done: int) -> None:
    pass


def _costing(cluster: RunningCluster, run: Callable[[], Result]) -> tuple[Result, float]:
    """Run the function of a load. Returns the load's result, and the CPU seconds that all nodes of
    the cluster used during the run."""
    pids = list(cluster.pids.values())
    before = cpu_seconds(pids)
    result = run()
    return result, cpu_seconds(pids) - before


# Small requests.


def _requests_row(kind: str, connections: int, in_flight: int) -> PerformanceRow:
    """Return the benchmark that sends small requests of one kind over `connections` connections,
    with `in_flight` requests in flight on each."""
    topic = f"performance-{kind}"

    def load_of(cluster: RunningCluster, replicas: int) -> Load:
        partitions = connections if kind == "commit" else 1
        return Load(
            bootstrap=cluster.bootstrap,
            topic=f"{topic}-{connections}",
            partitions=partitions,
            replication_factor=replicas,
        )

    def prepare(cluster: RunningCluster, replicas: int) -> None:
        _make(load_of(cluster, replicas))

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        load = load_of(cluster, replicas)
        address = parse_bootstrap(cluster.bootstrap)[0]
        given: dict[str, Any] = {
            "topic": load.topic,
            "count": REQUESTS[connections, in_flight],
            "connections": connections,
            "in_flight": in_flight,
            "progress": _no_progress,
        }
        result, cpu_s = _costing(
            cluster,
            lambda: (
                run_commits(address, has_members=False, **given)
                if kind == "commit"
                else run_requests(address, kind=kind, **given)
            ),
        )
        return {
            "requests_per_second": result.count / result.seconds,
            "cpu_us_per_request": 1e6 * cpu_s / result.count,
        }

    words = "OffsetCommit" if kind == "commit" else kind.capitalize()
    floor = None
    if kind in FLOOR_KINDS:
        floor = FloorRow(kind, False, connections, in_flight, REQUESTS[connections, in_flight])
    return PerformanceRow(f"{words}, {connections} × {in_flight}", run, prepare, floor)


def _large_row(kind: str, count: int) -> PerformanceRow:
    """Return the benchmark that sends `count` requests of one batch of 128 KiB, one after the
    other."""
    floor = FloorRow(kind, True, 1, 1, count)
    requests: dict[str, SmallRequest] = {}

    def prepare(cluster: RunningCluster, replicas: int) -> None:
        load = Load(
            bootstrap=cluster.bootstrap,
            topic=f"performance-{kind}-large",
            replication_factor=replicas,
        )
        _make(load)
        address = parse_bootstrap(cluster.bootstrap)[0]
        requests[cluster.bootstrap] = floor_work(floor, address, load.topic).request

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        address, pids = parse_bootstrap(cluster.bootstrap)[0], list(cluster.pids.values())
        return floor_values(floor, FloorServer(address, pids, requests[cluster.bootstrap]))

    return PerformanceRow(f"{kind.capitalize()}, 128 KiB, 1 × 1", run, prepare, floor)


def floor_values(row: FloorRow, server: FloorServer) -> Figures:
    """Send the requests of a row to a broker, or to the smallest program. Returns the measured
    values of the group `requests`."""
    rate, cpu_us = floor_figures(row, server, row.request_count)
    return {"requests_per_second": rate, "cpu_us_per_request": cpu_us}


# Throughput and latency.


def _load(
    cluster: RunningCluster, replicas: int, record_bytes: int, batch: int, codec: str
) -> Load:
    return Load(
        bootstrap=cluster.bootstrap,
        topic=f"performance-{record_bytes}-{batch}-{codec}",
        count=min(RECORDS_MAX, BYTES_OF_A_RUN // record_bytes),
        record_bytes=record_bytes,
        batch_bytes=batch,
        codec=codec,
        replication_factor=replicas,
    )


def _throughput_rows(record_bytes: int, batch: int, codec: str) -> list[PerformanceRow]:
    def prepare(cluster: RunningCluster, replicas: int) -> None:
        _make(_load(cluster, replicas, record_bytes, batch, codec))

    def row(what: str, act: Callable[[Load, Callable[[int], None]], Result]) -> PerformanceRow:
        def run(cluster: RunningCluster, replicas: int) -> Figures:
            load = _load(cluster, replicas, record_bytes, batch, codec)
            result, cpu_s = _costing(cluster, lambda: act(load, _no_progress))
            return {
                "mb_per_second": result.payload_bytes / 1e6 / result.seconds,
                "cpu_s_per_gb": cpu_s * GB / result.payload_bytes,
            }

        size = f"{batch // MIB} MiB" if batch >= MIB else f"{batch // KIB} KiB"
        packed = "" if codec == "none" else f", {codec}"
        return PerformanceRow(f"{what}, {record_bytes} B, {size}{packed}", run, prepare)

    return [row("Produce", produce), row("Consume", consume)]


def _end_to_end(cluster: RunningCluster, replicas: int) -> Figures:
    load = Load(
        bootstrap=cluster.bootstrap,
        topic="performance-latency",
        count=SINGLES,
        record_bytes=100,
        replication_factor=replicas,
    )
    figures = end_to_end(load, _no_progress).figures()
    return {"p50_ms": figures["latency_p50_ms"], "p99_ms": figures["latency_p99_ms"]}


def _prepare_latency(cluster: RunningCluster, replicas: int) -> None:
    _make(
        Load(
            bootstrap=cluster.bootstrap,
            topic="performance-latency",
            replication_factor=replicas,
        )
    )


def _make(load: Load) -> None:
    make_topic(load)
    wait_until_led(load)


# Administration and deaths.


def _admin(bootstrap: str) -> Any:
    return library("confluent_kafka.admin").AdminClient(
        {"bootstrap.servers": bootstrap, "log_level": 0}
    )


def _admin_row(count: int, partitions: int = 1) -> PerformanceRow:
    def run(cluster: RunningCluster, replicas: int) -> Figures:
        module = library("confluent_kafka.admin")
        admin = _admin(cluster.bootstrap)
        admin.list_topics(timeout=ADMIN_TIMEOUT_S)
        names = [f"made-{time.time_ns()}-{index}" for index in range(count)]
        topics = [module.NewTopic(name, partitions, replicas) for name in names]
        started = time.perf_counter()
        for future in admin.create_topics(topics).values():
            future.result(ADMIN_TIMEOUT_S)
        created = time.perf_counter()
        for future in admin.delete_topics(names).values():
            future.result(ADMIN_TIMEOUT_S)
        return {"create_s": created - started, "delete_s": time.perf_counter() - created}

    if partitions == 1:
        return PerformanceRow(f"{count} topics", run)
    return PerformanceRow(f"a topic of {partitions:,} partitions", run)


# Small requests under quotas, and a producer beside a compaction.


def _under_quotas(row: PerformanceRow) -> PerformanceRow:
    """Return a copy of a benchmark in which the client has quotas that are too high to be
    reached."""

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        set_quotas(cluster.bootstrap, UNREACHED_QUOTAS)
        try:
            return row.run(cluster, replicas)
        finally:
            set_quotas(cluster.bootstrap, dict.fromkeys(UNREACHED_QUOTAS))

    return PerformanceRow(f"{row.name}, with quotas", run, row.prepare)


def _while_compacting(cluster: RunningCluster, replicas: int) -> Figures:
    """Produce records until the running compaction has ended, and return the measured rates and
    latencies by name."""
    load = _load(cluster, replicas, 1_000, 128 * KIB, "none")
    dirty = f"dirty-{time.time_ns()}"
    fill_dirty(cluster, dirty, DIRTY_RECORDS, MIB)
    leader = NodeId(cluster.leader(dirty))
    full = log_bytes(cluster.bootstrap, leader, dirty)
    compact(cluster.bootstrap, dirty)
    payload, seconds, used_s = 0, 0.0, 0.0
    ends_at = time.monotonic() + COMPACTION_TIMEOUT_S
    while 2 * log_bytes(cluster.bootstrap, leader, dirty) > full:
        if time.monotonic() > ends_at:
            raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"{dirty} was not compacted")
        result, cpu_s = _costing(cluster, lambda: produce(load, _no_progress))
        payload, seconds = payload + result.payload_bytes, seconds + result.seconds
        used_s += cpu_s
    return {"mb_per_second": payload / 1e6 / seconds, "cpu_s_per_gb": used_s * GB / payload}


def _prepare_compacting(cluster: RunningCluster, replicas: int) -> None:
    _make(_load(cluster, replicas, 1_000, 128 * KIB, "none"))


def memory_with_partitions(cluster: RunningCluster, replicas: int, count: int) -> None:
    """Create a topic of `count` partitions and wait until all partitions have leaders, so that the
    nodes' memory can be measured."""
    load = Load(
        bootstrap=cluster.bootstrap,
        topic=f"performance-partitions-{count}",
        partitions=count,
        replication_factor=replicas,
    )
    _make(load)
    time.sleep(SETTLE_S)


def deaths(cluster: RunningCluster) -> Figures:
    """Kill the active controller, then a partition leader. Returns the seconds that clients had to
    wait after each kill."""
    load = Load(bootstrap=cluster.bootstrap, topic="performance-deaths", replication_factor=3)
    _make(load)
    cluster.wait_in_sync(load.topic)
    controller = _controller_death(cluster)
    time.sleep(SETTLED_S)
    broker = _broker_death(cluster, load.topic)
    return {
        "broker_killed_to_acknowledged_s": broker,
        "controller_killed_to_topic_created_s": controller,
    }


def _controller_death(cluster: RunningCluster) -> float:
    module = library("confluent_kafka.admin")
    admin = _admin(cluster.bootstrap)
    admin.list_topics(timeout=ADMIN_TIMEOUT_S)
    active = cluster.active_controller()
    started = time.perf_counter()
    cluster.kill(f"controller {active}")
    while time.perf_counter() - started < PATIENCE_S:
        topic = module.NewTopic(f"made-{time.time_ns()}", 1, 3)
        (future,) = admin.create_topics(
            [topic], request_timeout=2.0, operation_timeout=2.0
        ).values()
        try:
            future.result(PATIENCE_S)
        except library("confluent_kafka").KafkaException:
            time.sleep(SENT_EVERY_S)  # There is no controller yet, or it does not respond.
        else:
            return time.perf_counter() - started
    raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, "no topic was created after the death")


def _broker_death(cluster: RunningCluster, topic: str) -> float:
    leader = cluster.leader(topic)
    producer = library("confluent_kafka").Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "log_level": 0,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "retry.backoff.ms": 20,
        }
    )
    acknowledged: list[float] = []

    def delivered(error: Any, _: Any) -> None:
        if error is None:
            acknowledged.append(time.perf_counter())

    producer.produce(topic, b"before", partition=0)
    producer.flush(PATIENCE_S)
    started = time.perf_counter()
    cluster.kill(f"broker {leader}")
    producer.produce(topic, b"after", partition=0, on_delivery=delivered)
    while not acknowledged and time.perf_counter() - started < PATIENCE_S:
        producer.poll(SENT_EVERY_S)
    if not acknowledged:
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, "no record was taken after the death")
    return acknowledged[0] - started


LATENCY = PerformanceRow("End to end, acks=all", _end_to_end, _prepare_latency)
CONDITIONS = [
    *(
        _under_quotas(_requests_row(kind, *shape))
        for kind in ("produce", "fetch")
        for shape in REQUESTS
    ),
    PerformanceRow(
        "Produce, 1000 B, 128 KiB, beside a compaction", _while_compacting, _prepare_compacting
    ),
]
ADMIN = [_admin_row(FEW), _admin_row(MANY)]

ROWS: dict[tuple[str, str], list[PerformanceRow]] = {
    ("requests", ONE): [
        _requests_row(kind, *shape)
        for kind in ("produce", "fetch", "metadata", "commit")
        for shape in REQUESTS
    ]
    + [_large_row(kind, count) for kind, count in LARGE_REQUESTS.items()],
    ("throughput", ONE): [
        row
        for record_bytes in (100, 1_000)
        for batch, codec in (
            *((size, "none") for size in (16 * KIB, 128 * KIB, MIB)),
            *((128 * KIB, codec) for codec in ("lz4", "zstd")),
        )
        for row in _throughput_rows(record_bytes, batch, codec)
    ],
    ("latency", ONE): [LATENCY],
    ("conditions", ONE): CONDITIONS,
    ("admin", ONE): ADMIN,
    ("latency", THREE): [LATENCY],
    ("throughput", THREE): _throughput_rows(1_000, 128 * KIB, "none"),
    ("admin", THREE): [*ADMIN, _admin_row(1, 1_000)],
}
"""Benchmarks that run in rounds on running clusters, by (group, topology), in the order of
measurement."""


def rows_of(groups: Collection[str], topology: str) -> list[tuple[str, PerformanceRow]]:
    """Return the benchmarks of the given groups in one cluster topology, as pairs (group,
    benchmark)."""
    return [
        (group, row)
        for (group, of), found in ROWS.items()
        if of == topology and group in groups
        for row in found
    ]
