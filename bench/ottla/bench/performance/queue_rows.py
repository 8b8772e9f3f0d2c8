"""Benchmarks of docs/performance.md about share groups (KIP-932): consuming and acknowledging."""

import time
from collections.abc import Callable
from pathlib import Path

from ottla.bench.kafka.beside_kafka import wait_until_led
from ottla.bench.load import Load, make_topic, produce
from ottla.bench.local_cluster import RunningCluster
from ottla.bench.performance.performance_rows import Figures, PerformanceRow
from ottla.bench.processes import cpu_seconds
from ottla.bench.queues.java_consumers import consume_by_tool
from ottla.bench.queues.raw_consumers import RawShareConsumers, read_from_earliest

QUEUE_RECORDS = 400_000
"""Default number of records that share consumers consume in one measurement."""
PARTITIONS = 6
RECORD_BYTES = (100, 1_000)
CONSUMERS = (1, 8, 64)
SPARE_RECORDS = 40_000
"""Number of additional records to write. It exceeds the number of records that all share consumers
together can have acquired."""


def queue_rows(jars: Path, count: int) -> list[PerformanceRow]:
    """Return the benchmarks in which share groups consume `count` records. `jars` is the directory
    of Kafka's jars, which contain the tool of the first benchmarks."""
    rows = []
    for size in RECORD_BYTES:
        of_size = [_tool_row(jars, size, count, consumers) for consumers in CONSUMERS]
        of_size += [_raw_row(size, count, connections) for connections in CONSUMERS]
        # All rows of a size read the same topic, each as a group of its own.
        rows += [of_size[0]._replace(prepare=_filling(size, count)), *of_size[1:]]
    return rows


def _topic(size: int) -> str:
    return f"performance-queue-{size}"


def _filling(size: int, count: int) -> Callable[[RunningCluster, int], None]:
    def fill(cluster: RunningCluster, replicas: int) -> None:
        load = Load(
            bootstrap=cluster.bootstrap,
            topic=_topic(size),
            # Consumers hold records when the last of those to consume is acknowledged.
            count=count + count // 4 + SPARE_RECORDS,
            record_bytes=size,
            partitions=PARTITIONS,
            replication_factor=replicas,
        )
        make_topic(load)
        wait_until_led(load)
        produce(load, lambda done: None)

    return fill


def _tool_row(jars: Path, size: int, count: int, consumers: int) -> PerformanceRow:
    """Return the benchmark in which Kafka's ShareConsumerPerformance tool consumes `count` records
    of `size` bytes with `consumers` consumers."""

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        group = f"ottla-bench-{time.time_ns()}"
        read_from_earliest(cluster.bootstrap, group)
        found = consume_by_tool(
            jars,
            cluster.bootstrap,
            _topic(size),
            group=group,
            count=count,
            consumers=consumers,
            cpu_s=lambda: cpu_seconds(list(cluster.pids.values())),
        )
        return {
            "records_per_second": found.records / found.seconds,
            "cpu_us_per_record": 1e6 * found.cpu_s / found.records,
        }

    return PerformanceRow(f"Java's tool, {size} B, {_number_of(consumers, 'consumer')}", run)


def _raw_row(size: int, count: int, connections: int) -> PerformanceRow:
    """Return the benchmark in which `connections` share consumers over raw connections consume
    `count` records of `size` bytes."""

    def run(cluster: RunningCluster, replicas: int) -> Figures:
        load = RawShareConsumers(
            cluster.bootstrap, _topic(size), partitions=PARTITIONS, connections=connections
        )
        load.join()
        pids = list(cluster.pids.values())
        before = cpu_seconds(pids)
        result = load.consume(count)
        cpu_s = cpu_seconds(pids) - before
        return {
            "records_per_second": result.count / result.seconds,
            "cpu_us_per_record": 1e6 * cpu_s / result.count,
        }

    return PerformanceRow(f"ShareFetch, {size} B, {_number_of(connections, 'connection')}", run)


def _number_of(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
