"""The Spark driver that `spark-faults` kills: one topic into Parquet and into another topic.

Run as a process of its own, `python -m ottla.bench.spark_faults_driver JSON`, until it is killed.
Both queries go on from their checkpoints; `drain` ends them when they have all there is, and
`verify` says what came of it all.
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
"""Records in each piece in which the copy is read."""
ARCHIVE = "archive"
COPY = "copy"
QUERIES = (ARCHIVE, COPY)


class SparkWork(NamedTuple):
    """What is read and where it goes."""

    bootstrap: str
    source: str
    copy: str
    directory: str
    """Holds the Parquet files and the checkpoints."""
    batch_records: int
    """The most that one batch takes: small, so that there are many to die in."""

    def checkpoint(self, query: str) -> Path:
        """Return where a query keeps what it did."""
        return Path(self.directory) / f"{query}-checkpoint"

    @property
    def archive(self) -> str:
        """Return where the Parquet files are."""
        return str(Path(self.directory) / ARCHIVE)


class SourceRow(NamedTuple):
    """A record of the source, or what became of it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    """Begins with the record's number, which grows from record to record."""


def start(spark: "SparkSession", work: SparkWork, *, is_last: bool) -> "list[StreamingQuery]":
    """Start both queries, from where they were; the last time they end with what there is."""
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
    """Run both queries until they have all there is."""
    for query in start(spark, work, is_last=True):
        query.awaitTermination()


def verify(spark: "SparkSession", work: SparkWork) -> dict[str, int]:
    """Compare what was read with what is in the files, and what the topic has committed.

    Who reads all of the topic, and drops replays, must come to the same count.
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
    """Count what is wrong with an archive and a copy of the source, each in any order."""
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
    """Run until killed; or, with `last`, to the end, and print what came of it."""
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
