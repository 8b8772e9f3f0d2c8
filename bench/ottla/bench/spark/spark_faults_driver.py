"""The Spark driver that `spark-faults` kills.  It copies one topic into Parquet and into another
topic.

`python -m ottla.bench.spark.spark_faults_driver JSON` runs as a process of its own, until it is
killed.  Both queries continue from their checkpoints.  `drain` runs them until they have read
everything, and `verify` checks the output.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.pipeline.run.session import SessionOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 1
PIECE = 10_000
"""Number of records that the check of the output reads from the copied topic at a time."""
ARCHIVE = "archive"
COPY = "copy"
QUERIES = (ARCHIVE, COPY)


class SparkWork(NamedTuple):
    """Source and sinks of the Spark driver that `spark-faults` kills."""

    bootstrap: str
    source: str
    copy: str
    directory: str
    """Directory of the Spark driver's Parquet files and checkpoints."""
    batch_records: int
    """Maximum number of records in a batch of the driver's queries. It is small, so that there are
    many batches during which the driver can be killed."""

    def checkpoint(self, query: str) -> Path:
        """Return the checkpoint directory of the query with the given name."""
        return Path(self.directory) / f"{query}-checkpoint"

    @property
    def archive(self) -> str:
        """Directory of the Parquet files that the driver writes."""
        return str(Path(self.directory) / ARCHIVE)


class SourceRow(NamedTuple):
    """Record of the source topic, or its copy in the files or in the other topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    """Value of the record. It begins with the record's number; the numbers ascend."""


def start(spark: "SparkSession", work: SparkWork, *, is_last: bool) -> "list[StreamingQuery]":
    """Start both queries of the Spark driver from their checkpoints, and return them. If `is_last`,
    they end when they have read all current records."""
    trigger: dict[str, Any] = {"availableNow": True} if is_last else {"processingTime": "0 seconds"}
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", work.bootstrap)
        .option("subscribe", work.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", work.batch_records)
        .option("minPartitions", 2)
        .load()
    )
    archive = (
        rows.select(*SourceRow._fields).writeStream.format("parquet").option("path", work.archive)
    )
    copy = (
        rows.select("key", "value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", work.bootstrap)
        .option("topic", work.copy)
    )
    return [
        writer.option("checkpointLocation", str(work.checkpoint(name)))
        .queryName(name)
        .trigger(**trigger)
        .start()
        for name, writer in ((ARCHIVE, archive), (COPY, copy))
    ]


def drain(spark: "SparkSession", work: SparkWork) -> None:
    """Run both queries of the Spark driver until they have copied all current records."""
    for query in start(spark, work, is_last=True):
        query.awaitTermination()


def verify(spark: "SparkSession", work: SparkWork) -> dict[str, int]:
    """Compare the source topic with the records in the Parquet files, and with the committed
    records of the copied topic. Returns the numbers of records, and the numbers of errors of each
    kind, by name.

    A second reader reads all records of the topic with dropReplays. It must find the same number of
    records.
    """
    source = _rows(_topic(spark, work, work.source))
    archive = _rows(spark.read.parquet(work.archive))
    once = {"kafka.isolation.level": "read_committed"}
    copy = _rows(_topic(spark, work, work.copy, maxRecordsPerPartition=str(PIECE), **once))
    whole = _topic(spark, work, work.copy, columns="offset", dropReplays="true").count()
    written = _topic(spark, work, work.copy, columns="offset").count()
    return {
        "copy_records_written": written,
        **compare(source, archive, copy),
        "copy_read_whole_doubled_or_else": abs(whole - len(copy)),
    }


def compare(
    source: list[SourceRow], archive: list[SourceRow], copy: list[SourceRow]
) -> dict[str, int]:
    """Return the number of records in a source topic, its archive and its copy, and the number of
    errors of each kind. The rows may be in any order."""
    wanted, found = Counter(source), Counter(archive)
    wanted_copy = Counter((row.key, row.value) for row in source)
    found_copy = Counter((row.key, row.value) for row in copy)
    last: dict[tuple[bytes, int], int] = {}
    out_of_order = 0
    for row in sorted(copy, key=lambda row: (row.partition, row.offset)):
        if row.key is not None:
            number = int(row.value.split()[0])
            out_of_order += number <= last.get((row.key, row.partition), -1)
            last[row.key, row.partition] = number
    return {
        "source_records": len(source),
        "archive_records": len(archive),
        "archive_missing": (wanted - found).total(),
        "archive_doubled_or_else": (found - wanted).total(),
        "copy_records_committed": len(copy),
        "copy_missing": (wanted_copy - found_copy).total(),
        "copy_doubled_or_else": (found_copy - wanted_copy).total(),
        "copy_out_of_order": out_of_order,
    }


def _rows(frame: "DataFrame") -> list[SourceRow]:
    table = frame.select(*SourceRow._fields).toArrow()
    return list(
        map(SourceRow._make, zip(*(column.to_pylist() for column in table.columns), strict=True))
    )


def _topic(spark: "SparkSession", work: SparkWork, topic: str, **options: str) -> "DataFrame":
    return (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", work.bootstrap)
        .option("subscribe", topic)
        .options(**options)
        .load()
    )


def main(arguments: list[str]) -> int:
    """Run the queries of the Spark driver until the process is killed. With the argument `last`,
    run them to the end, and print the numbers of missing, duplicated and reordered records as JSON.
    """
    work = SparkWork(**json.loads(arguments[0]))
    is_last = arguments[1:] == ["last"]
    conf = (("spark.driver.memory", "1g"), ("spark.sql.shuffle.partitions", "2"))
    with open_session(SessionOptions(name="spark-faults", master="local[2]", conf=conf)) as spark:
        if is_last:
            drain(spark, work)
            print(json.dumps(verify(spark, work)))
            return 0
        queries = start(spark, work, is_last=False)
        while all(query.isActive for query in queries):
            spark.streams.awaitAnyTermination(LOOK_S)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
