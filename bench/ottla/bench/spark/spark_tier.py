"""Speed of Spark's reads of copied segments: `python -m ottla.bench.spark.spark_tier`.

Four readers take turns within each round, on equal rows: `format("ottla")` with
`option("tier", "direct")`, the same through a broker that fetches from the object store, the same
of a topic that the broker has on its own disk, and Spark's own scan of Parquet files with the same
columns. Values are random bytes, so that the sizes in the topic and in the files are about equal.

The program starts a cluster of one controller and one broker, with the object store in a directory.
All rows are copied, and deleted on the broker's disk, before the first query. CPU seconds are the
sum for the JVM, its Python workers, and the cluster.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.bench.load import library
from ottla.bench.local_cluster import StartedCluster, open_cluster_in
from ottla.bench.processes import tree_seconds, usage_of
from ottla.bench.spark.spark_session import jvm_pid, open_spark
from ottla.bench.tables import table_of
from ottla.client import ConfigKind, ConfigResource, TopicPartition, open_admin
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.offset_timestamps import EARLIEST_LOCAL, LATEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MB = 1_000_000
SIZES = (100, 1_000)
"""Sizes in bytes of record values. There is one run for each size. The records have no key."""
SEGMENT_BYTES = 16 << 20
METADATA = "rlmm.config.remote.log.metadata.topic"
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    f"{METADATA}.num.partitions": "1",
    f"{METADATA}.replication.factor": "1",
    f"{METADATA}.min.isr": "1",
}
TIERED, LOCAL = "tiered", "local"
DIRECT, BROKERS, BROKERS_DISK, PARQUET = "direct", "brokers", "brokers' disk", "parquet"
COPY_TIMEOUT_S = 120.0

Frames = Mapping[str, Callable[[], "DataFrame"]]
"""Functions that plan the reading of all rows, by reader."""


class ScanCost(NamedTuple):
    """Elapsed seconds of one query, and CPU seconds of Spark and of the cluster."""

    seconds: float
    spark_cpu_s: float
    cluster_cpu_s: float


def fill(bootstrap: str, topic: str, count: int, record_bytes: int, partitions: int) -> None:
    """Write random records to a topic, in turns to its partitions."""
    producer = library("confluent_kafka").Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 131_072,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    random = os.urandom(64 << 20)
    for number in range(count):
        at = number * record_bytes % (len(random) - record_bytes)
        value = random[at : at + record_bytes]
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(COPY_TIMEOUT_S):
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, "the records were not written in time")


async def make_topics(bootstrap: str, names: Mapping[str, str], partitions: int) -> None:
    """Create a topic for each of the names. The one for TIERED is tiered."""
    async with open_admin(bootstrap) as admin:
        for kind, name in names.items():
            configs = {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "0"}
            if kind == TIERED:
                configs["remote.storage.enable"] = "true"
            await admin.create_topic(name, partition_count=partitions, configs=configs)


async def move_to_store(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until only the object store has the records of a topic."""
    at = [TopicPartition(topic, index) for index in range(partitions)]
    async with open_admin(bootstrap) as admin:
        resource = ConfigResource(ConfigKind.TOPIC, topic)
        await admin.alter_configs(resource, {"local.retention.ms": "1"})
        with trio.fail_after(COPY_TIMEOUT_S):
            while True:
                ends, local = [
                    await admin.list_offsets(dict.fromkeys(at, special))
                    for special in (LATEST, EARLIEST_LOCAL)
                ]
                if all(local[each].offset == ends[each].offset for each in at):
                    return
                await trio.sleep(0.2)


def frames_of(
    spark: "SparkSession", bootstrap: str, names: Mapping[str, str], store: str, files: Path
) -> Frames:
    """Return the readers. Writes the Parquet files."""

    def read(topic: str, **options: str) -> "DataFrame":
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    read(names[LOCAL]).write.parquet(str(files))
    return {
        DIRECT: lambda: read(names[TIERED], tier="direct", tierUri=store),
        BROKERS: lambda: read(names[TIERED]),
        BROKERS_DISK: lambda: read(names[LOCAL]),
        PARQUET: lambda: spark.read.parquet(str(files)),
    }


def to_noop(frame: "DataFrame") -> None:
    """Read all columns of all rows."""
    frame.write.format("noop").mode("overwrite").save()


def to_sum(frame: "DataFrame") -> int:
    """Return the total size of the values, and read only this column."""
    from pyspark.sql import functions

    (row,) = frame.select(functions.sum(functions.length("value"))).collect()
    return int(row[0])


SINKS: Mapping[str, Callable[["DataFrame"], int | None]] = {"noop": to_noop, "sum": to_sum}


def measured(
    spark: "SparkSession", cluster: StartedCluster, frames: Frames, rounds: int, total_bytes: int
) -> dict[tuple[str, str], list[ScanCost]]:
    """Run each query once in each round, in turns. The first round warms up and is not counted."""
    pid = jvm_pid(spark)
    found: dict[tuple[str, str], list[ScanCost]] = {}
    for round_ in range(rounds + 1):
        for sink, consume in SINKS.items():
            for reader, frame in frames.items():
                broker_before = usage_of(cluster.all_pids)
                before, started = tree_seconds(pid), time.perf_counter()
                size = consume(frame())
                seconds, spark_s = time.perf_counter() - started, tree_seconds(pid) - before
                broker_after = usage_of(cluster.all_pids)
                if size not in (None, total_bytes):
                    raise RefusedError(
                        ErrorCode.INVALID_REQUEST, f"{reader}: {size} bytes, not {total_bytes}"
                    )
                cluster_s = sum(
                    sign * (usage.user_s + usage.system_s)
                    for sign, usage in ((1, broker_after), (-1, broker_before))
                )
                if round_:
                    cost = ScanCost(seconds, spark_s, cluster_s)
                    found.setdefault((sink, reader), []).append(cost)
    return found


def rows_of(
    found: Mapping[tuple[str, str], Sequence[ScanCost]], record_bytes: int, count: int
) -> list[dict[str, Any]]:
    """Return a row with medians for each query. The ratios are medians of the rounds."""
    rows = []
    for (sink, reader), costs in found.items():
        seconds = median(cost.seconds for cost in costs)
        direct, parquet = found[sink, DIRECT], found[sink, PARQUET]
        rows.append(
            {
                "record_bytes": record_bytes,
                "sink": sink,
                "reader": reader,
                "mb_per_second": round(count * record_bytes / seconds / MB, 1),
                "seconds": round(seconds, 2),
                "spark_cpu_s": round(median(cost.spark_cpu_s for cost in costs), 2),
                "cluster_cpu_s": round(median(cost.cluster_cpu_s for cost in costs), 2),
                "of_direct": _ratio(costs, direct),
                "of_parquet": _ratio(costs, parquet),
            }
        )
    return rows


def _ratio(costs: Sequence[ScanCost], others: Sequence[ScanCost]) -> float:
    """Return the median ratio of the elapsed times of two queries within each round."""
    pairs = zip(costs, others, strict=True)
    return round(median(cost.seconds / other.seconds for cost, other in pairs), 2)


def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure each record size in one cluster. Returns the rows."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        directory = Path(name)
        (directory / "store").mkdir()
        store = f"file://{directory}/store"
        settings: dict[str, Any] = {**SETTINGS, "remote.log.storage.uri": store}
        with (
            open_cluster_in(directory / "cluster", controllers=1, brokers=1, **settings) as cluster,
            open_spark("ottla bench", master=arguments.master, jars=None) as spark,
        ):
            for size in SIZES:
                count = int(arguments.mb * MB) // size
                names = {TIERED: f"tiered-{size}", LOCAL: f"local-{size}"}
                trio.run(make_topics, cluster.bootstrap, names, arguments.partitions)
                for topic in names.values():
                    fill(cluster.bootstrap, topic, count, size, arguments.partitions)
                trio.run(move_to_store, cluster.bootstrap, names[TIERED], arguments.partitions)
                files = directory / f"files-{size}"
                frames = frames_of(spark, cluster.bootstrap, names, store, files)
                found = measured(spark, cluster, frames, arguments.rounds, count * size)
                rows += rows_of(found, size, count)
                copies = (directory / "store").glob(f"*/{names[TIERED]}-*/**/*")
                for place, paths in (("store", copies), ("parquet", files.rglob("*"))):
                    total = sum(path.stat().st_size for path in paths if path.is_file())
                    print(f"{place}: {total / MB:.1f} MB for {count:,} records of {size} bytes")
    return rows


def main() -> None:
    """Measure, and print the rows."""
    parser = argparse.ArgumentParser(prog="python -m ottla.bench.spark.spark_tier")
    parser.add_argument("--mb", type=float, default=200, help="MB of values of a topic")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--master", default="local[2]", help="Spark's master")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    rows = run(arguments)
    if arguments.format == "json":
        print(json.dumps(rows))
        return
    headers = [name.upper().replace("_", "-") for name in rows[0]]
    print(table_of(headers, [list(row.values()) for row in rows]))


if __name__ == "__main__":
    main()
