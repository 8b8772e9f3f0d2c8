"""Benchmarks of docs/performance.md that resemble everyday work: latency at steady rates below the
maximum, many partitions, and many clients."""

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ottla.bench.kafka.beside_kafka import wait_until_led
from ottla.bench.kafka.paced_load import ACKNOWLEDGED, READ, UNPACED, PacedLoad
from ottla.bench.load import Load, consume, library, make_topic, produce
from ottla.bench.local_cluster import RunningCluster
from ottla.bench.performance.long_polls import LongPolls
from ottla.bench.performance.performance_rows import ONE, THREE, Figures, PerformanceRow
from ottla.bench.processes import cpu_seconds
from ottla.bench.requests import RequestLatency
from ottla.bench.result import GB, latency_figures
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.endpoints import parse_bootstrap

RATES, PARTITIONS, CLIENTS = "rates", "partitions", "connections"
SHARES = (0.1, 0.5, 0.9)
"""Rates in the benchmarks `rates`, as fractions of the rate that every server sustains."""
LINGERS_MS = (5, 0)
PROBE_S, STEADY_S = 3.0, 4.0
"""Durations in seconds of two measurements: of the highest rate, and of latencies at a steady
rate."""
SETTLE_S = 1.0
"""Seconds between the start of a load and the start of its measurement."""
PARTITION_COUNTS = (1, 100, 1_000)
PARTITION_RECORDS = 60_000
RECORD_BYTES = 1_000
KEYS = 10_000
POLLING_CONSUMERS, POLLED_PARTITIONS, POLLED_RATE = 500, 50, 100.0
PRODUCERS, TOPICS = 50, 20
PRODUCER_RECORDS, PRODUCER_RATE = 60_000, 5_000
TICK_S, SENT_AT_ONCE = 0.001, 500
"""For many producers: interval in seconds at which due records are sent and acknowledgements
handled, and maximum number of records sent before acknowledgements are handled."""
PATIENCE_S = 60.0
CATCH_UP_READERS, CATCH_UP_RECORDS, CATCH_UP_RATE = 2, 100_000, 2_000


def work_rows(groups: Collection[str], topology: str) -> list[tuple[str, PerformanceRow]]:
    """Return the benchmarks of the given groups in one cluster topology, as pairs (group,
    benchmark)."""
    found: dict[tuple[str, str], Callable[[], list[PerformanceRow]]] = {
        (RATES, ONE): lambda: [row for linger in LINGERS_MS for row in _rate_rows(linger)],
        (RATES, THREE): lambda: _rate_rows(LINGERS_MS[0]),
        (PARTITIONS, ONE): lambda: [
            row for count in PARTITION_COUNTS for row in _partition_rows(count)
        ],
        (CLIENTS, ONE): lambda: [
            _long_poll_row(),
            *(_producers_row(rate) for rate in (PRODUCER_RATE, UNPACED)),
            _catch_up_row(),
        ],
    }
    return [
        (group, row)
        for (group, of), rows in found.items()
        if of == topology and group in groups
        for row in rows()
    ]


# Latency at shares of the highest rate.


class SustainedRates:
    """Highest rates that servers sustained with one producer and one consumer. The benchmarks use a
    rate that all servers sustain."""

    def __init__(self, linger_ms: int) -> None:
        self._linger_ms = linger_ms
        self._rates: list[float] = []

    @property
    def topic(self) -> str:
        """Topic of the measured records."""
        return f"performance-rates-{self._linger_ms}"

    def probe(self, cluster: RunningCluster, replicas: int) -> None:
        """Measure a server's highest sustained rate in records per second: the lower value of its
        rates of acknowledged and of consumed records."""
        _make(Load(bootstrap=cluster.bootstrap, topic=self.topic, replication_factor=replicas))
        with PacedLoad(cluster.bootstrap, self.topic, UNPACED, self._linger_ms) as load:
            time.sleep(SETTLE_S)
            began_at = time.perf_counter()
            time.sleep(PROBE_S)
            ended_at = time.perf_counter()
        rate = min(
            load.sample_every * _ended_between(waited, began_at, ended_at) / PROBE_S
            for waited in load.waited.values()
        )
        if not rate:
            reason = f"no record of {self.topic} was sent and read in {PROBE_S:g} s"
            raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, reason)
        self._rates.append(rate)

    def at(self, share: float) -> int:
        """Return a fraction of the rate that all probed servers sustain, in records per second."""
        return max(1, round(share * min(self._rates)))


def _ended_between(waited: Sequence[RequestLatency], began_at: float, ended_at: float) -> int:
    return sum(began_at <= each.sent_at + each.seconds < ended_at for each in waited)


def _rate_rows(linger_ms: int) -> list[PerformanceRow]:
    """Return the benchmarks of one producer and one tailing consumer at steady rates, for a given
    `linger.ms` of the producer."""
    rates = SustainedRates(linger_ms)

    def row(share: float) -> PerformanceRow:
        def run(cluster: RunningCluster, replicas: int) -> Figures:
            return _steady(cluster, rates.topic, rates.at(share), linger_ms, _sleep)

        return PerformanceRow(f"{share:.0%} of the rate, linger.ms={linger_ms}", run)

    first, *others = map(row, SHARES)
    return [first._replace(prepare=rates.probe), *others]


def _steady(
    cluster: RunningCluster,
    topic: str,
    rate: int,
    linger_ms: int,
    beside: Callable[[float], Figures],
) -> Figures:
    """Run a producer and a tailing consumer at a steady rate, together with another load. The other
    load is a function of the duration in seconds. Returns the latencies of both, the CPU time, and
    the measured values of the other load."""
    pids = list(cluster.pids.values())
    with PacedLoad(cluster.bootstrap, topic, rate, linger_ms) as load:
        time.sleep(SETTLE_S)
        before, began_at = cpu_seconds(pids), time.perf_counter()
        others = beside(STEADY_S)
        cpu_s, ended_at = cpu_seconds(pids) - before, time.perf_counter()
    figures: Figures = {}
    for what, kind in (("produce", ACKNOWLEDGED), ("end_to_end", READ)):
        seen = [
            1e3 * each.seconds for each in load.waited[kind] if began_at <= each.sent_at < ended_at
        ]
        if not seen:
            raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"no record of {topic} was {kind}")
        if kind == ACKNOWLEDGED:
            acknowledged = load.sample_every * len(seen)
        figures |= {f"{what}_{name}": value for name, value in latency_figures(seen).items()}
    figures["records_per_second"] = acknowledged / (ended_at - began_at)
    if not others:
        figures["cpu_us_per_record"] = 1e6 * cpu_s / acknowledged
    return figures | others


def _sleep(seconds: float) -> Figures:
    time.sleep(seconds)
    return {}


# Many partitions.


def _partition_rows(count: int) -> list[PerformanceRow]:
    """Return the benchmarks that write keyed records to `count` partitions, and read them."""

    def load_of(cluster: RunningCluster, replicas: int) -> Load:
        return Load(
            bootstrap=cluster.bootstrap,
            topic=f"performance-spread-{count}",
            count=PARTITION_RECORDS,
            record_bytes=RECORD_BYTES,
            partitions=count,
            key_count=KEYS,
            replication_factor=replicas,
        )

    def row(what: str, act: Callable[..., Any]) -> PerformanceRow:
        def run(cluster: RunningCluster, replicas: int) -> Figures:
            load, pids = load_of(cluster, replicas), list(cluster.pids.values())
            before = cpu_seconds(pids)
            result = act(load, _no_progress)
            cpu_s = cpu_seconds(pids) - before
            return {
                "mb_per_second": result.payload_bytes / 1e6 / result.seconds,
                "cpu_s_per_gb": cpu_s * GB / result.payload_bytes,
            }

        partitions = "1 partition" if count == 1 else f"{count:,} partitions"
        return PerformanceRow(f"{what}, {partitions}", run)

    def prepare(cluster: RunningCluster, replicas: int) -> None:
        _make(load_of(cluster, replicas))

    return [row("Produce", produce)._replace(prepare=prepare), row("Consume", consume)]


# Many clients.


def _long_poll_row() -> PerformanceRow:
    """Return the benchmark of consumers that wait in long polls, over raw sockets."""
    topic = "performance-long-polls"

    def prepare(cluster: RunningCluster, replicas: int) -> None:
        _make(
            Load(
                bootstrap=cluster.bootstrap,
                topic=topic,
                partitions=POLLED_PARTITIONS,
                replication_factor=replicas,
            )
        )

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        address, pids = parse_bootstrap(cluster.bootstrap)[0], list(cluster.pids.values())
        with LongPolls(
            address, topic, partitions=POLLED_PARTITIONS, consumers=POLLING_CONSUMERS
        ) as polls:
            before = cpu_seconds(pids)
            latencies = polls.wake(POLLED_RATE, STEADY_S)
            cpu_s = cpu_seconds(pids) - before
        figures = {f"end_to_end_{name}": ms for name, ms in latency_figures(latencies).items()}
        return figures | {"cpu_us_per_record": 1e6 * cpu_s / len(latencies)}

    name = f"{POLLING_CONSUMERS} consumers in long polls, {POLLED_RATE:g} records/s"
    return PerformanceRow(name, run, prepare)


def _producers_row(rate: int) -> PerformanceRow:
    """Return the benchmark of many producers that each write to many topics. Their total rate is
    `rate`, or as high as possible if `rate` is `UNPACED`."""

    def topics_of(cluster: RunningCluster, replicas: int) -> list[Load]:
        return [
            Load(
                bootstrap=cluster.bootstrap,
                topic=f"performance-topic-{number}",
                replication_factor=replicas,
            )
            for number in range(TOPICS)
        ]

    def prepare(cluster: RunningCluster, replicas: int) -> None:
        for load in topics_of(cluster, replicas):
            _make(load)

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        topics = [load.topic for load in topics_of(cluster, replicas)]
        count = PRODUCER_RECORDS if rate == UNPACED else round(rate * STEADY_S)
        pids = list(cluster.pids.values())
        before = cpu_seconds(pids)
        seconds, latencies = _produce_by_many(cluster.bootstrap, topics, count, rate)
        cpu_s = cpu_seconds(pids) - before
        figures: Figures = {"records_per_second": count / seconds}
        if rate != UNPACED:
            figures = {f"produce_{name}": ms for name, ms in latency_figures(latencies).items()}
        return figures | {"cpu_us_per_record": 1e6 * cpu_s / count}

    pace = "full speed" if rate == UNPACED else f"{rate:,} records/s"
    return PerformanceRow(f"{PRODUCERS} producers × {TOPICS} topics, {pace}", run, prepare)


def _produce_by_many(
    bootstrap: str, topics: Sequence[str], count: int, rate: int
) -> tuple[float, list[float]]:
    """Send `count` records by many producers, each of which writes to all topics. Returns the
    seconds until all records were acknowledged, and their latencies in ms.

    Raises RefusedError if a record is not acknowledged.
    """
    confluent = library("confluent_kafka")
    producers = [
        confluent.Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0}
        )
        for _ in range(PRODUCERS)
    ]
    for producer in producers:
        producer.list_topics(timeout=PATIENCE_S)
    latencies: list[float] = []
    failures: list[str] = []

    def send(number: int) -> None:
        sent_at = time.perf_counter()

        def delivered(error: Any, _: Any) -> None:
            latencies.append(1e3 * (time.perf_counter() - sent_at))
            if error is not None:
                failures.append(str(error))

        # A producer sends to each topic in turn, also if the two numbers have a common divisor.
        topic = topics[(number + number // len(producers)) % len(topics)]
        producers[number % len(producers)].produce(topic, payload, on_delivery=delivered)

    payload = b"x" * RECORD_BYTES
    started = time.perf_counter()
    sent = 0
    while sent < count:
        due = count
        if rate != UNPACED:
            time.sleep(TICK_S)
            due = min(count, int(rate * (time.perf_counter() - started)))
        for number in range(sent, min(due, sent + SENT_AT_ONCE)):
            send(number)
            sent = number + 1
        for producer in producers:
            producer.poll(0)
    left = sum(producer.flush(PATIENCE_S) for producer in producers)
    seconds = time.perf_counter() - started
    if failures or left:
        reason = failures[0] if failures else f"{left} records were not acknowledged"
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, reason)
    return seconds, latencies


def _catch_up_row() -> PerformanceRow:
    """Return the benchmark of a producer and a tailing consumer at a steady rate, while other
    consumers read a backlog repeatedly."""
    topic = "performance-beside-catch-up"

    def backlog_of(cluster: RunningCluster, replicas: int) -> Load:
        return Load(
            bootstrap=cluster.bootstrap,
            topic="performance-backlog",
            count=CATCH_UP_RECORDS,
            record_bytes=RECORD_BYTES,
            replication_factor=replicas,
        )

    def prepare(cluster: RunningCluster, replicas: int) -> None:
        backlog = backlog_of(cluster, replicas)
        _make(replace(backlog, topic=topic))
        _make(backlog)
        produce(backlog, _no_progress)

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        backlog = backlog_of(cluster, replicas)

        def read(seconds: float) -> Figures:
            return _catch_up(backlog, seconds)

        return _steady(cluster, topic, CATCH_UP_RATE, LINGERS_MS[0], read)

    name = f"{CATCH_UP_RATE:,} records/s beside {CATCH_UP_READERS} catch-up readers"
    return PerformanceRow(name, run, prepare)


def _catch_up(backlog: Load, seconds: float) -> Figures:
    """Run several consumers that read a backlog repeatedly for `seconds` seconds. Returns their
    total rate."""
    started = time.perf_counter()

    def read() -> int:
        read_bytes = 0
        while time.perf_counter() - started < seconds:
            read_bytes += consume(backlog, _no_progress).payload_bytes
        return read_bytes

    with ThreadPoolExecutor(CATCH_UP_READERS) as pool:
        readers = [pool.submit(read) for _ in range(CATCH_UP_READERS)]
        total = sum(reader.result() for reader in readers)
    return {"mb_per_second": total / 1e6 / (time.perf_counter() - started)}


def _make(load: Load) -> None:
    make_topic(load)
    wait_until_led(load)


def _no_progress(done: int) -> None:
    pass
