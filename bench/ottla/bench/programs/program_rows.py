"""Benchmarks of docs/performance.md whose load is a program of another maker, with its default
settings: Kafka's performance tools, and a program with the Go client franz-go."""

import time
from collections.abc import Callable
from pathlib import Path

from ottla.bench.kafka.beside_kafka import wait_until_led
from ottla.bench.load import Load, make_topic, produce
from ottla.bench.local_cluster import RunningCluster
from ottla.bench.performance.performance_rows import Figures, PerformanceRow
from ottla.bench.processes import cpu_seconds
from ottla.bench.programs.franz_client import run_franz
from ottla.bench.programs.java_tools import (
    consume_rate_by_tool,
    end_to_end_by_tool,
    produce_by_tool,
)

PROGRAMS = "programs"
RECORD_BYTES = 1_000
TOOL_RECORDS, WARM_UP_RECORDS = 300_000, 100_000
"""Numbers of records of ProducerPerformance at full speed, and of those that it does not measure,
because Java compiles its code meanwhile."""
PACED_RATE, PACED_RECORDS, PACED_WARM_UP = 5_000, 50_000, 20_000
"""Records per second of ProducerPerformance at a steady rate, and numbers of records as above."""
CONSUMED_RECORDS = 400_000
SINGLES = 2_000
FRANZ_RECORDS = {100: 400_000, 1_000: 200_000}
"""Number of records of franz-go in a measurement, by the size of a value in bytes."""
UNPACED = -1
"""Rate of ProducerPerformance at full speed."""


def program_rows(jars: Path, franz: Path | None) -> list[PerformanceRow]:
    """Return the benchmarks. `jars` is the directory of Kafka's jars, which contain its tools.
    `franz` is the program with franz-go, or None if it is not available."""
    return [
        _producer_tool_row(jars, UNPACED),
        _producer_tool_row(jars, PACED_RATE),
        _consumer_tool_row(jars),
        _end_to_end_tool_row(jars),
        *(
            _franz_row(franz, what, size)
            for size in (FRANZ_RECORDS if franz is not None else ())
            for what in ("produce", "consume")
        ),
    ]


def _costing(cluster: RunningCluster, count: int, run: Callable[[], Figures]) -> Figures:
    """Run a program. Returns its figures, with the CPU time of the cluster's nodes for each of
    `count` records."""
    pids = list(cluster.pids.values())
    before = cpu_seconds(pids)
    figures = run()
    return figures | {"cpu_us_per_record": 1e6 * (cpu_seconds(pids) - before) / count}


def _making(
    topic: str, filled_count: int = 0, record_bytes: int = RECORD_BYTES
) -> Callable[[RunningCluster, int], None]:
    """Return a preparation that creates a topic, and writes `filled_count` records to it."""

    def prepare(cluster: RunningCluster, replicas: int) -> None:
        load = Load(
            bootstrap=cluster.bootstrap,
            topic=topic,
            count=filled_count,
            record_bytes=record_bytes,
            replication_factor=replicas,
        )
        make_topic(load)
        wait_until_led(load)
        if filled_count:
            produce(load, lambda done: None)

    return prepare


def _producer_tool_row(jars: Path, rate: int) -> PerformanceRow:
    is_paced = rate != UNPACED
    topic = "performance-producer-tool"

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        count = PACED_RECORDS if is_paced else TOOL_RECORDS

        def send() -> Figures:
            found = produce_by_tool(
                jars,
                cluster.bootstrap,
                topic,
                count=count,
                warm_up_count=PACED_WARM_UP if is_paced else WARM_UP_RECORDS,
                record_bytes=RECORD_BYTES,
                rate=rate,
            )
            if not is_paced:
                return {"records_per_second": found.records_per_second}
            return {"produce_p99_ms": found.p99_ms, "produce_p99.9_ms": found.p999_ms}

        return _costing(cluster, count, send)

    pace = f"{rate:,} records/s" if is_paced else "full speed"
    name = f"kafka-producer-perf-test, {RECORD_BYTES} B, {pace}"
    return PerformanceRow(name, run, None if is_paced else _making(topic))


def _consumer_tool_row(jars: Path) -> PerformanceRow:
    topic = "performance-consumer-tool"

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        def read() -> Figures:
            group = f"ottla-bench-{time.time_ns()}"
            rate = consume_rate_by_tool(
                jars, cluster.bootstrap, topic, group=group, count=CONSUMED_RECORDS
            )
            return {"records_per_second": rate}

        return _costing(cluster, CONSUMED_RECORDS, read)

    name = f"kafka-consumer-perf-test, {RECORD_BYTES} B"
    return PerformanceRow(name, run, _making(topic, CONSUMED_RECORDS))


def _end_to_end_tool_row(jars: Path) -> PerformanceRow:
    topic = "performance-end-to-end-tool"

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        def send() -> Figures:
            found = end_to_end_by_tool(
                jars, cluster.bootstrap, topic, count=SINGLES, record_bytes=100
            )
            return {"end_to_end_mean_ms": found.mean_ms, "end_to_end_p99_ms": found.p99_ms}

        return _costing(cluster, SINGLES, send)

    return PerformanceRow("kafka-e2e-latency, 100 B, acks=all", run, _making(topic))


def _franz_row(franz: Path | None, what: str, size: int) -> PerformanceRow:
    assert franz is not None
    topic, count = f"performance-franz-{size}", FRANZ_RECORDS[size]

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        def work() -> Figures:
            found = run_franz(franz, what, cluster.bootstrap, topic, count=count, record_bytes=size)
            return {"records_per_second": found.record_count / found.seconds}

        return _costing(cluster, count, work)

    # The records that are read are those of the measurement before.
    prepare = _making(topic) if what == "produce" else None
    return PerformanceRow(f"franz-go, {what}, {size} B", run, prepare)
