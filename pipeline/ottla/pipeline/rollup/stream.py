"""The stream of rollups, which writes each rollup once, as Parquet files and to a topic.

A window is written when the newest push is later than the window's end by `lateness_ms`. A push
that arrives after that is not lost: it adds rows with `is_late` to its window, so totals over all
rows remain exact.

RollupsCountOnce: a batch that is run again reads the state of the previous batch, and writes the
same rows to the same directory. Its Parquet files are in partitions of its own, which it
overwrites. Its records contain the batch number, so that readers with `dropReplays` see them once.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own way to write it
from pyspark.sql.streaming.query import StreamingQuery

from ottla.model.errors import ConfigError
from ottla.pipeline.rollup import frames
from ottla.pipeline.rollup.frames import RollupOptions
from ottla.pipeline.rollup.ledger import OPEN, Memory, SlotLedger

TOPIC = "__client_metrics"
LATENESS_MS_DEFAULT = 30_000
SEEN_MS = 3_600_000
"""Time in ms for which a push (a client's report of metrics) is stored, so that its copies are not
counted. Brokers and clients retry within minutes. With a longer time, more pushes are stored. With
a shorter time, a late copy is counted again."""
HEADS_MS = 86_400_000
"""Time in ms for which a cumulative metric series without new points is stored. After that, a new
point counts with its full value. With a longer time, the series of more stopped clients are
stored."""
DAY_MS = 86_400_000
QUERY_ID = "sql.streaming.queryId"
"""Name of the local property that Spark sets for the jobs of a streaming query."""

_log = logging.getLogger("ottla.pipeline")


@dataclass(frozen=True, kw_only=True)
class TelemetryOptions:
    """Source, rollups and output of the streaming query for client metrics."""

    bootstrap: str
    login: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options for encryption and login (kafka.…), by name, used for both the source and the
    sink."""
    checkpoint: str
    output: str | None = None
    """Directory for Parquet files of rollups, partitioned by date and batch. None writes no
    files."""
    output_topic: str | None = None
    """Topic for the same rollups as JSON, keyed by their group. None writes no records."""
    topic: str = TOPIC
    name: str = "telemetry"
    rollup: RollupOptions = field(default_factory=RollupOptions)
    lateness_ms: int = LATENESS_MS_DEFAULT
    trigger_s: float | None = None
    """Seconds between the starts of two batches of the streaming query. None processes all records
    that exist now, and then ends."""
    source: Mapping[str, str] = field(default_factory=dict)
    """Further options of Spark's data source `format("ottla")`, from which client metrics are read.
    """

    def __post_init__(self) -> None:
        if self.lateness_ms < 0:
            raise ConfigError("lateness", f"is {self.lateness_ms} ms; it must not be below 0")
        if self.output is None and self.output_topic is None:
            raise ConfigError("output", "say a directory or a topic for the rollups, or both")
        if self.output_topic == self.topic:
            raise ConfigError("output-topic", f"is {self.topic!r}, which is what is read")


class BatchResult(NamedTuple):
    """Numbers of records and metric points that one batch of the rollup stream has processed."""

    records: int
    unreadable: int
    """Number of records that could not be decoded as client metrics."""
    late: int
    """Number of metric points in time windows whose rollup had already been written."""
    ripe: int
    """Number of metric points in time windows that this batch has completed."""
    waiting: int
    """Number of metric points in time windows that are not over yet."""


def start(spark: SparkSession, options: TelemetryOptions) -> StreamingQuery:
    """Start and return the streaming query that writes rollups of client metrics. It continues from
    its checkpoint if there is one."""
    records = spark.readStream.format("ottla").options(**source_of(options)).load()
    return start_on(records, options)


def source_of(options: TelemetryOptions) -> dict[str, str]:
    """Return the options of Spark's data source `format("ottla")` that read client metrics."""
    return {
        "startingOffsets": "earliest",
        **options.login,
        **options.source,
        "kafka.bootstrap.servers": options.bootstrap,
        "subscribe": options.topic,
        "columns": "value,partition,offset",
    }


def start_on(records: DataFrame, options: TelemetryOptions) -> StreamingQuery:
    """Start and return the streaming query that writes rollups of a stream of records (value,
    partition, offset) from any source."""
    batches = RollupBatches(options)
    writer = records.writeStream.queryName(options.name).foreachBatch(batches)
    writer = writer.option("checkpointLocation", options.checkpoint)
    if options.trigger_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(options.trigger_s * 1_000)} milliseconds").start()


class RollupBatches:
    """Function object that Spark calls for each batch of the rollup stream. It stores only the
    result of the last batch."""

    def __init__(self, options: TelemetryOptions) -> None:
        self._options = options
        self.result: BatchResult | None = None

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        """Process the records of a batch, and write the rollups of time windows that are over."""
        spark = records.sparkSession
        query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
        assert query_id, "Spark names the query to those who run its batches"
        ledger = SlotLedger(spark, f"{self._options.checkpoint}/ledger", query_id)
        memory = ledger.before(batch_id)
        pushes = frames.decoded(records).persist()
        survey = _survey(pushes)
        points, left = self._step(pushes, memory, survey)
        points.persist()
        try:
            result = _count_points(points, survey)
            if result.late or result.ripe:
                rollups = frames.rolled_up(points.filter("is_over"), self._options.rollup)
                self._write(rollups, query_id, batch_id)
            ledger.write(batch_id, left)
        finally:
            points.unpersist()
            pushes.unpersist()
        if result.unreadable:
            _log.warning("batch %d: %d records are no client metrics", batch_id, result.unreadable)
        self.result = result

    def _step(
        self, pushes: DataFrame, memory: Memory, survey: "_Survey"
    ) -> tuple[DataFrame, Memory]:
        """Return the metric points of clients' pushes, marked with `is_over` and `is_late` for
        their time windows, and the new state of the stream."""
        rollup = self._options.rollup
        times_ms = [at_ms for at_ms in (memory.newest_ms, survey.newest_ms) if at_ms is not None]
        newest_ms = max(times_ms, default=None)
        fresh = frames.first_copies(pushes, memory.seen)
        new = frames.points_of(fresh, rollup)
        added = frames.contributions(new, memory.heads, has_cumulative=survey.has_cumulative)
        added = frames.with_window(added, rollup, self._over_ms(memory.newest_ms))
        points = added.unionByName(memory.open.withColumn("is_late", F.lit(False)))
        points = points.withColumn("is_over", frames.is_over(rollup, self._over_ms(newest_ms)))
        seen = memory.seen.unionByName(fresh.select("push_id", "received_ms"))
        heads = memory.heads
        if survey.has_cumulative:
            heads = frames.heads_after(new, heads)
        if newest_ms is not None:
            seen = seen.filter(F.col("received_ms") >= newest_ms - SEEN_MS)
            heads = heads and heads.filter(F.col("received_ms") >= newest_ms - HEADS_MS)
        return points, Memory(seen, heads, points.filter("not is_over").select(*OPEN), newest_ms)

    def _write(self, rollups: DataFrame, query_id: str, batch_id: int) -> None:
        # There are few rows, but without this they are written to many files.
        rollups = rollups.repartition(1).persist()
        try:
            if self._options.output is not None:
                write_parquet(rollups, self._options.output, f"{query_id[:8]}-{batch_id}")
            if self._options.output_topic is not None:
                self._write_topic(rollups, self._options.output_topic, query_id, batch_id)
        finally:
            rollups.unpersist()

    def _write_topic(self, rollups: DataFrame, topic: str, query_id: str, batch_id: int) -> None:
        as_records(rollups, self._options.rollup).write.format("ottla").options(
            **{
                **self._options.login,
                "kafka.bootstrap.servers": self._options.bootstrap,
                "topic": topic,
                "txnAppId": query_id,
                "txnVersion": str(batch_id),
                "sortRows": "true",
            }
        ).mode("append").save()

    def _over_ms(self, newest_ms: int | None) -> int | None:
        """Return the time in ms since 1970 up to which windows are over, or None if no window is
        over. `newest_ms` is the time at which the newest push was received, or None before the
        first push."""
        return None if newest_ms is None else newest_ms - self._options.lateness_ms


class _Survey(NamedTuple):
    """Properties of a batch's pushes (clients' reports of metrics), on which the batch's processing
    depends."""

    newest_ms: int | None
    records: int
    unreadable: int
    has_cumulative: bool


def _survey(pushes: DataFrame) -> _Survey:
    """Scan all pushes (clients' reports of metrics) of a batch once, and return the properties on
    which its processing depends. The scan also caches the pushes."""
    has_cumulative = F.expr("coalesce(bool_or(exists(points, p -> p.is_cumulative)), false)")
    counted = F.count(F.lit(1)), F.count(F.col("problem"))
    (row,) = pushes.agg(F.max("received_ms"), *counted, has_cumulative).collect()
    return _Survey(*row)


def _count_points(points: DataFrame, survey: _Survey) -> BatchResult:
    """Count the metric points of a batch, and return the result of the batch. The count also caches
    the points."""
    rows = points.groupBy("is_over", "is_late").agg(F.count(F.lit(1)).alias("points")).collect()
    counts = {(row.is_over, row.is_late): int(row.points) for row in rows}
    return BatchResult(
        records=survey.records,
        unreadable=survey.unreadable,
        late=counts.get((True, True), 0),
        ripe=counts.get((True, False), 0),
        waiting=counts.get((False, False), 0),
    )


def write_parquet(rollups: DataFrame, directory: str, batch: str) -> None:
    """Write the rollups of a batch as Parquet files. They replace an earlier output of the same
    batch."""
    date = F.expr(f"date_from_unix_date(cast(floor(unix_millis(window_start) / {DAY_MS}) as int))")
    placed = rollups.withColumn("date", date).withColumn("batch", F.lit(batch))
    writer = placed.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("date", "batch").parquet(directory)


def as_records(rollups: DataFrame, options: RollupOptions) -> DataFrame:
    """Return rollups as records for the output topic, with the group as key and the row as JSON
    value."""
    by = [frames.column_of(name) for name in options.by]
    key = F.concat_ws("|", *(F.col(name).cast("string") for name in by), F.col("metric"))
    value = F.to_json(F.struct(*rollups.columns))
    return rollups.select(key.alias("key"), value.alias("value"))
