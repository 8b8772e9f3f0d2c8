"""The stream of rollups: batch by batch, into Parquet and a topic, each rollup once.

A window is told when the newest push is later than its end by `lateness_ms`.  A push that comes
later still is not lost: it makes further rows of its window, with `is_late`, so that totals over
all rows stay exact.

RollupsCountOnce: a batch that is run again writes the same rows in the same place.  Its Parquet
files lie in partitions of its own, which it overwrites; its records carry which batch they are of,
so that readers with `dropReplays` see them once; what it remembers it reads from the batch before.
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
"""How long a push is known, so that a copy of it counts once.  Brokers and clients send again
within minutes; longer remembers more pushes, shorter counts a late copy twice."""
HEADS_MS = 86_400_000
"""How long a cumulative series is known without a point.  After that it counts from its beginning
when it comes back; longer keeps series of clients that are gone."""
DAY_MS = 86_400_000
QUERY_ID = "sql.streaming.queryId"
"""Spark's own local property for the jobs of a stream."""

_log = logging.getLogger("ottla.pipeline")


@dataclass(frozen=True, kw_only=True)
class TelemetryOptions:
    """What is read, what is made of it, and where that goes."""

    bootstrap: str
    login: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How to encrypt and log in: options kafka.… of source and sink."""
    checkpoint: str
    output: str | None = None
    """A directory for Parquet, by date and batch."""
    output_topic: str | None = None
    """A topic for the same rows as JSON, by client."""
    topic: str = TOPIC
    name: str = "telemetry"
    rollup: RollupOptions = field(default_factory=RollupOptions)
    lateness_ms: int = LATENESS_MS_DEFAULT
    trigger_s: float | None = None
    """From the start of a batch to that of the next; None for all there is now, once."""
    source: Mapping[str, str] = field(default_factory=dict)
    """Further options of format("ottla")."""

    def __post_init__(self) -> None:
        if self.lateness_ms < 0:
            raise ConfigError("lateness", f"is {self.lateness_ms} ms; it must not be below 0")
        if self.output is None and self.output_topic is None:
            raise ConfigError("output", "say a directory or a topic for the rollups, or both")
        if self.output_topic == self.topic:
            raise ConfigError("output-topic", f"is {self.topic!r}, which is what is read")


class BatchResult(NamedTuple):
    """What one batch came to."""

    records: int
    unreadable: int
    """Records that are no client metrics."""
    late: int
    """Points of windows that had been told before."""
    ripe: int
    """Points of windows that were over with this batch."""
    waiting: int
    """Points of windows that are open."""


def start(spark: SparkSession, options: TelemetryOptions) -> StreamingQuery:
    """Start the query; it goes on from its checkpoint where there is one."""
    records = spark.readStream.format("ottla").options(**source_of(options)).load()
    return start_on(records, options)


def source_of(options: TelemetryOptions) -> dict[str, str]:
    """Return the options of `format("ottla")` that read what clients pushed."""
    return {
        "startingOffsets": "earliest",
        **options.login,
        **options.source,
        "kafka.bootstrap.servers": options.bootstrap,
        "subscribe": options.topic,
        "columns": "value,partition,offset",
    }


def start_on(records: DataFrame, options: TelemetryOptions) -> StreamingQuery:
    """Start the query on a stream of records (value, partition, offset), wherever it comes from."""
    batches = RollupBatches(options)
    writer = records.writeStream.queryName(options.name).foreachBatch(batches)
    writer = writer.option("checkpointLocation", options.checkpoint)
    if options.trigger_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(options.trigger_s * 1_000)} milliseconds").start()


class RollupBatches:
    """What is done with each batch; remembers nothing but what the last one came to."""

    def __init__(self, options: TelemetryOptions) -> None:
        self._options = options
        self.told: BatchResult | None = None

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        """Take in the records of a batch, and tell the windows that are over with it."""
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
            told = _told(points, survey)
            if told.late or told.ripe:
                rollups = frames.rolled_up(points.filter("is_over"), self._options.rollup)
                self._write(rollups, query_id, batch_id)
            ledger.write(batch_id, left)
        finally:
            points.unpersist()
            pushes.unpersist()
        if told.unreadable:
            _log.warning("batch %d: %d records are no client metrics", batch_id, told.unreadable)
        self.told = told

    def _step(
        self, pushes: DataFrame, memory: Memory, survey: "_Survey"
    ) -> tuple[DataFrame, Memory]:
        """Return what is in windows now (`is_over`, `is_late`), and what is left of it all."""
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
        # They are few, and files many.
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
        """Return up to when windows are over; None when none is."""
        return None if newest_ms is None else newest_ms - self._options.lateness_ms


class _Survey(NamedTuple):
    """What must be known of a batch before it is clear what is to be done."""

    newest_ms: int | None
    records: int
    unreadable: int
    has_cumulative: bool


def _survey(pushes: DataFrame) -> _Survey:
    """Look once over all pushes of a batch, which keeps them in the cache."""
    has_cumulative = F.expr("coalesce(bool_or(exists(points, p -> p.is_cumulative)), false)")
    counted = F.count(F.lit(1)), F.count(F.col("problem"))
    (row,) = pushes.agg(F.max("received_ms"), *counted, has_cumulative).collect()
    return _Survey(*row)


def _told(points: DataFrame, survey: _Survey) -> BatchResult:
    """Count the points of a batch, which keeps them in the cache."""
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
    """Write rollups as those of a batch, in the place of what it wrote before."""
    date = F.expr(f"date_from_unix_date(cast(floor(unix_millis(window_start) / {DAY_MS}) as int))")
    placed = rollups.withColumn("date", date).withColumn("batch", F.lit(batch))
    writer = placed.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("date", "batch").parquet(directory)


def as_records(rollups: DataFrame, options: RollupOptions) -> DataFrame:
    """Return rollups as records: keyed by what they are made by, JSON as value."""
    by = [frames.column_of(name) for name in options.by]
    key = F.concat_ws("|", *(F.col(name).cast("string") for name in by), F.col("metric"))
    value = F.to_json(F.struct(*rollups.columns))
    return rollups.select(key.alias("key"), value.alias("value"))
