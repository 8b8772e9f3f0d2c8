"""Comparison of millions of different records, as read by Spark and by another client.

A DataFrame of each topic is written to Parquet, which keeps the order of a task's rows. Then
confluent-kafka's consumer reads every partition, and all columns of all records are compared in
order. If records differ, the first difference is printed and the exit code is 2.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.bench.kafka.compaction_wait import wait_until_compacted
from ottla.bench.local_cluster import open_cluster_in
from ottla.bench.spark.spark_mix import make_mixed_topic, read_partition, write_mix
from ottla.bench.spark.spark_session import open_spark
from ottla.model.errors import CorruptDataError
from ottla.pipeline.read.arrow_schema import arrow_schema, column_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEALTHY, UNHEALTHY = 0, 2
COMPACTED_SHARE = 10
"""Divisor of the total number of records.  The quotient is the number of records in each of the two
compacted topics."""
PLAIN = "plain"
COMPACTED = ("compacted-1", "compacted-2")
NAMES = column_names(None, True)
AT_ONCE = 10_000


class RoundTrip(NamedTuple):
    """Result of the comparison of one topic's records, as read by Spark and by another client."""

    topic: str
    records: int
    gone: int
    """Number of the topic's offsets without a record, because compaction removed the record."""
    with_headers: int
    null_keys: int
    null_values: int


def run(arguments: argparse.Namespace) -> int:
    """Write three topics to a new broker, compact two of them, read them in Spark, and compare.
    Returns the exit code."""
    count, partitions = arguments.count, arguments.partitions
    share = count // COMPACTED_SHARE
    found: list[dict[str, Any]] = []
    code = HEALTHY
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        directory = Path(name)
        with (
            open_cluster_in(
                directory, controllers=1, brokers=1, log_cleaner_backoff_ms="200"
            ) as cluster,
            open_spark("ottla round trip", master=arguments.master, jars=None) as spark,
        ):
            make_mixed_topic(cluster.bootstrap, PLAIN, partitions, is_compacted=False)
            rest = count - len(COMPACTED) * share
            write_mix(cluster.bootstrap, PLAIN, rest, has_keys=False)
            for seed, topic in enumerate(COMPACTED):
                make_mixed_topic(cluster.bootstrap, topic, partitions, is_compacted=True)
                write_mix(cluster.bootstrap, topic, share, has_keys=True, seed=seed)
            for topic in COMPACTED:
                wait_until_compacted(directory, topic)
            for topic in (PLAIN, *COMPACTED):
                started = time.perf_counter()
                try:
                    row: dict[str, Any] = compare_topic(spark, cluster.bootstrap, topic)._asdict()
                except CorruptDataError as error:
                    row, code = {"topic": topic, "differs": error.where}, UNHEALTHY
                found.append(row | {"seconds": round(time.perf_counter() - started, 1)})
    for row in found:
        print(json.dumps(row))
    return code


def compare_topic(spark: "SparkSession", bootstrap: str, topic: str) -> RoundTrip:
    """Compare a topic record by record, and return the result. Raises CorruptDataError at the first
    difference, which the error names."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    records = gone = with_headers = null_keys = null_values = 0
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        frame.write.parquet(str(out))
        for partition, pieces in sorted(_by_partition(out).items()):
            messages = iter(read_partition(bootstrap, topic, partition))
            end = 0
            for piece in pieces:
                _compare(piece, messages, f"{topic}-{partition}")
                records += piece.num_rows
                with_headers += piece.num_rows - piece.column("headers").null_count
                null_keys += piece.column("key").null_count
                null_values += piece.column("value").null_count
                end = piece.column("offset")[-1].as_py() + 1
            if (more := next(messages, None)) is not None:
                raise CorruptDataError(f"{topic}-{partition} ends before offset {more.offset()}")
            gone += end - sum(piece.num_rows for piece in pieces)
    return RoundTrip(topic, records, gone, with_headers, null_keys, null_values)


def _by_partition(directory: Path) -> dict[int, list[pa.Table]]:
    """Return the rows of each topic partition, in the tables that the Spark tasks have written,
    ordered by first offset."""
    found: dict[int, list[pa.Table]] = {}
    for path in sorted(directory.glob("*.parquet")):
        table = pq.read_table(path)
        numbers = table.column("partition")
        for number in numbers.unique().to_pylist():
            rows = table.filter(pc.equal(numbers, number))
            found.setdefault(number, []).append(rows)
    for pieces in found.values():
        pieces.sort(key=lambda piece: int(piece.column("offset")[0].as_py()))
    return found


def _compare(piece: pa.Table, messages: Iterator[Any], where: str) -> None:
    schema = arrow_schema(NAMES)
    for start in range(0, piece.num_rows, AT_ONCE):
        found = piece.slice(start, AT_ONCE)
        wanted = _table(islice(messages, found.num_rows))
        if wanted.num_rows != found.num_rows:
            raise CorruptDataError(f"{where} has only {start + wanted.num_rows} records")
        for field in schema:
            column = found.column(field.name).cast(field.type)
            if not column.equals(wanted.column(field.name)):
                raise CorruptDataError(_first_difference(column, wanted, field.name, where))


def _first_difference(column: pa.ChunkedArray, wanted: pa.Table, name: str, where: str) -> str:
    pairs = zip(column.to_pylist(), wanted.column(name).to_pylist(), strict=True)
    row, (one, other) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
    offset = wanted.column("offset")[row].as_py()
    return f"{name} of {where} at offset {offset}: {one!r} in Spark, {other!r} by confluent-kafka"


def _table(messages: Iterable[Any]) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [] for name in NAMES}
    for message in messages:
        kind, stamp_ms = message.timestamp()
        headers = message.headers()
        columns["key"].append(message.key())
        columns["value"].append(message.value())
        columns["topic"].append(message.topic())
        columns["partition"].append(message.partition())
        columns["offset"].append(message.offset())
        columns["timestamp"].append(1_000 * stamp_ms)
        columns["timestampType"].append(kind - 1)
        columns["headers"].append(
            headers and [{"key": name, "value": content} for name, content in headers]
        )
    return pa.table(columns, schema=arrow_schema(NAMES))
