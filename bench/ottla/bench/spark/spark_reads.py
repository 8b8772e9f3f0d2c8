"""Speed of reading topics in Spark with Ottla's data source, with confluent-kafka's consumer, and
with Spark's own connector.

The readers take turns within each round, so that a noisy machine affects all of them. They run the
same query over the same topic of the same broker.  CPU seconds are the sum for the JVM and its
Python workers. On a shared machine they are more reliable than the elapsed time.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.bench.load import Load, produce
from ottla.bench.processes import tree_seconds
from ottla.bench.spark.spark_session import jvm_pid, open_spark
from ottla.bench.tables import table_of
from ottla.bench.topics import RunTopics, open_topics
from ottla.client import TopicPartition, open_admin
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.offset_timestamps import LATEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS = "ottla"
SIZES = (100, 1_000)
"""Sizes in bytes of record values. There is one topic for each size. The records have no key."""
MB = 1_000_000
BATCH_BYTES = 131_072
BYTES_READ = 200 * MB
"""Number of bytes that one query reads unless the user sets the number of records."""
PARTITION_COUNTS = (1, 4, 16, 64)


class MeasuredQuery(NamedTuple):
    """One Spark query whose speed is measured."""

    reader: str
    sink: str
    topic: str
    records: int
    record_bytes: int


class QueryCost(NamedTuple):
    """Elapsed seconds and CPU seconds of one Spark query."""

    seconds: float
    cpu_s: float


def run_reads(arguments: argparse.Namespace) -> int:
    """Compare the readers of topics with count, noop and Parquet queries, on small and large
    records. Returns the exit code."""
    readers = [OURS, "confluent", *(["kafka"] if arguments.jars else [])]
    filled: dict[int, tuple[str, int]] = {}
    with _topics(arguments) as topics:
        for size in SIZES:
            topic = f"{topics.name}-{size}"
            count = arguments.count or BYTES_READ // size
            records = _filled(arguments, topics, topic, count, size, arguments.partitions)
            filled[size] = (topic, records)
        queries = [
            MeasuredQuery(reader, sink, *filled[size], size)
            for size in SIZES
            for sink in SINKS
            for reader in readers
        ]
        _show(_measure(arguments, queries), arguments)
    return 0


def run_partitions(arguments: argparse.Namespace) -> int:
    """Read the same number of records from 1, 4, 16 and 64 partitions. Returns the exit code."""
    readers = [OURS, *(["kafka"] if arguments.jars else [])]
    queries: list[MeasuredQuery] = []
    with _topics(arguments) as topics:
        for partitions in PARTITION_COUNTS:
            topic = f"{topics.name}-{SIZES[0]}-{partitions}"
            wanted = arguments.count or BYTES_READ // SIZES[0]
            count = _filled(arguments, topics, topic, wanted, SIZES[0], partitions)
            queries += [MeasuredQuery(reader, "noop", topic, count, SIZES[0]) for reader in readers]
        _show(_measure(arguments, queries), arguments)
    return 0


def _topics(arguments: argparse.Namespace) -> AbstractContextManager[RunTopics]:
    return open_topics(arguments.bootstrap_server, arguments.topic, is_kept=arguments.keep)


def _filled(
    arguments: argparse.Namespace,
    topics: RunTopics,
    topic: str,
    count: int,
    size: int,
    partitions: int,
) -> int:
    """Fill a topic with records if it is new, and return the number of its records. A topic that
    already has records is left unchanged."""
    load = Load(
        bootstrap=arguments.bootstrap_server,
        topic=topic,
        count=count,
        record_bytes=size,
        batch_bytes=BATCH_BYTES,
        codec=arguments.codec,
        partitions=partitions,
        replication_factor=arguments.replication_factor,
    )
    topics.make(load)
    if not _record_count(load):
        produce(load, lambda done: None)
    return _record_count(load)


def _record_count(load: Load) -> int:
    async def ask() -> int:
        async with open_admin(load.bootstrap) as admin:
            found = (await admin.describe_topic(load.topic)).partitions
            partitions = [TopicPartition(load.topic, one.partition) for one in found]
            ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
            return sum(one.offset for one in ends.values())

    return trio.run(ask)


def _measure(
    arguments: argparse.Namespace, queries: list[MeasuredQuery]
) -> dict[MeasuredQuery, list[QueryCost]]:
    runs: dict[MeasuredQuery, list[QueryCost]] = {query: [] for query in queries}
    with open_spark("ottla bench", master=arguments.master, jars=arguments.jars) as spark:
        for round_ in range(arguments.rounds + 1):
            for query in queries:
                run = _run(spark, arguments.bootstrap_server, query)
                if round_:  # The first round warms up Spark and the broker.
                    runs[query].append(run)
    return runs


def _run(spark: "SparkSession", bootstrap: str, query: MeasuredQuery) -> QueryCost:
    frame = (
        spark.read.format(query.reader)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", query.topic)
        .load()
    )
    pid = jvm_pid(spark)
    with tempfile.TemporaryDirectory() as directory:
        before, started = tree_seconds(pid), time.perf_counter()
        found = SINKS[query.sink](frame, Path(directory))
        run = QueryCost(time.perf_counter() - started, tree_seconds(pid) - before)
    if found is not None and found != query.records:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"{query.reader} read {found} records of {query.topic}, which has {query.records}",
        )
    return run


def _to_count(frame: "DataFrame", directory: Path) -> int:
    return frame.count()


def _to_noop(frame: "DataFrame", directory: Path) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _to_parquet(frame: "DataFrame", directory: Path) -> None:
    frame.write.parquet(str(directory / "out"))
    shutil.rmtree(directory / "out")


SINKS: dict[str, Callable[["DataFrame", Path], int | None]] = {
    "count": _to_count,
    "noop": _to_noop,
    "parquet": _to_parquet,
}


def _show(runs: dict[MeasuredQuery, list[QueryCost]], arguments: argparse.Namespace) -> None:
    rows = [_row(query, found, runs) for query, found in runs.items()]
    if arguments.format == "json":
        print(json.dumps(rows))
        return
    headers = [name.upper().replace("_", "-") for name in rows[0]]
    print(table_of(headers, [list(row.values()) for row in rows]))


def _row(
    query: MeasuredQuery, found: list[QueryCost], runs: dict[MeasuredQuery, list[QueryCost]]
) -> dict[str, Any]:
    seconds = median(run.seconds for run in found)
    cpu_s = median(run.cpu_s for run in found)
    ours = runs[query._replace(reader=OURS)]
    return {
        "topic": query.topic,
        "record_bytes": query.record_bytes,
        "sink": query.sink,
        "reader": query.reader,
        "rows_per_second": round(query.records / seconds),
        "mb_per_second": round(query.records * query.record_bytes / seconds / MB, 1),
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "ours_is_faster": round(
            median(other.seconds / own.seconds for own, other in zip(ours, found, strict=True)), 2
        ),
        "ours_takes_less_cpu": round(
            median(other.cpu_s / own.cpu_s for own, other in zip(ours, found, strict=True)), 2
        ),
    }
