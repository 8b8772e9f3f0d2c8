"""Windowed rollups of client metrics: functions from DataFrames to DataFrames.

The functions start nothing and store nothing.  A stream's state between its batches (the pushes
already seen, the last point of every cumulative series, the points of open windows) is an input and
an output DataFrame, which `rollup/stream.py` stores.  The same functions can therefore be used by a
stream, by a batch query over all records, and by a declared pipeline.

PushesCountOnce: copies of a push are not counted. TotalsAreExact: the totals of all rows of a
series equal the sum of its clients' increments. Delta points count with their value. Cumulative
points count with their growth since the previous point, or with their value after a restart of the
client. The time at which the broker received a push determines its window, because clients' clocks
are not trusted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # Spark's own way to write it
from pyspark.sql.pandas import functions as arrow_functions
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DoubleType

from ottla.model.errors import ConfigError
from ottla.pipeline.rollup.points import GAUGE, HISTOGRAM, SUM, pushes
from ottla.pipeline.rollup.quantiles import quantiles
from ottla.telemetry.clients.client_labels import LABEL_NAMES

PUSH_TYPE = from_arrow_type(pushes([]).type)
"""Spark type of a push (one report of metrics by a client). It is derived from Arrow, because Spark
would have to parse a DDL text, which declared pipelines forbid."""
PUSH = ("partition", "offset", *(field.name for field in pushes([]).type))
SERIES = ("client_instance_id", "metric", "kind", "attributes", "ordinal")
"""Names of the columns that identify a metric series: one metric of one client."""
VALUES = ("value", "count", "sum", "bounds", "counts")
HEAD = (*SERIES, "received_ms", "at_ns", "start_ns", *VALUES)
"""Columns of the last point of a metric series, as stored between batches."""
CONTRIBUTION = (*LABEL_NAMES, "received_ms", "metric", "unit", "kind", "attributes", *VALUES)
"""Columns of the value that one metric point adds to its time window in a rollup."""

_arrow_udf: Any = arrow_functions.arrow_udf
"""pyspark's `arrow_udf` without its type stubs, which reject the type hints that pyspark
recommends."""

WINDOW_MS_DEFAULT = 60_000
SHARES = (0.5, 0.99)
LIKENESS = 0.85
"""Minimum similarity, from 0 to 1, of an unknown grouping attribute to the name of a label at which
the attribute is refused as a misspelling."""
ERROR_NAMES = r"(^|[._-])(errors?|fail(ed|ures?)?|rejected|expired|timeouts?)([._-]|$)"
"""Pattern of the names of metrics that count errors."""


@dataclass(frozen=True)
class RollupOptions:
    """Metrics that a rollup includes, and the window and labels by which they are grouped."""

    window_ms: int = WINDOW_MS_DEFAULT
    by: tuple[str, ...] = ("client_id", "broker_id")
    """Labels of clients, or names of attributes, by which rows are grouped in addition to the
    metric. Each of these labels and attributes becomes a column."""
    metrics: tuple[str, ...] = ()
    """Prefixes of the names of metrics that the rollup includes. Empty means all metrics."""

    def __post_init__(self) -> None:
        if self.window_ms <= 0:
            raise ConfigError("window", f"is {self.window_ms} ms; it must be above 0")
        columns = [column_of(name) for name in self.by]
        for name, column in zip(self.by, columns, strict=True):
            if column in RESERVED or columns.count(column) > 1:
                raise ConfigError("by", f"has {name!r}, which is a column of every rollup already")
            near = get_close_matches(name, LABEL_NAMES, n=1, cutoff=LIKENESS)
            if near and near[0] != name:
                raise ConfigError("by", f"has {name!r}; did you mean {near[0]}?")


RESERVED = {
    "window_start", "window_end", "window_ms", "metric", "unit", "kind", "is_error", "is_late",
    "clients", "points", "observations", "total", "rate", "mean", "min", "max", "p50", "p99",
    "date", "batch",
}  # fmt: skip
"""Names of the columns that every rollup of client metrics has, with any grouping."""


def column_of(name: str) -> str:
    """Return the column name for a metric label or attribute: dots and dashes become
    underscores."""
    return "".join(sign if sign.isalnum() else "_" for sign in name)


def decoded(records: DataFrame) -> DataFrame:
    """Decode records of client metrics. Returns one push (a client's report of metrics,
    `PUSH_TYPE`) for each record, with the record's partition and offset."""
    as_push = _arrow_udf(_pushes_of, PUSH_TYPE)
    found = records.select("partition", "offset", as_push(F.col("value")).alias("push"))
    return found.select("partition", "offset", "push.*")


def _pushes_of(values: pa.Array) -> pa.Array:
    return pushes(values.to_pylist())


def first_copies(pushes: DataFrame, seen: DataFrame | None = None) -> DataFrame:
    """Return the first copy of every push (a client's report of metrics) in the log, without pushes
    that are already in `seen`."""
    order = Window.partitionBy("push_id").orderBy("partition", "offset")
    read = pushes.filter(F.col("push_id").isNotNull())
    numbered = read.withColumn("copy", F.row_number().over(order))
    first = numbered.filter("copy = 1").select(*PUSH)  # dropping a column would query Spark
    return first if seen is None else first.join(seen.select("push_id"), "push_id", "left_anti")


def points_of(pushes: DataFrame, options: RollupOptions) -> DataFrame:
    """Return every metric point of clients' pushes. `at_ns` is the time of the point in nanoseconds
    since 1970, or else the time at which the push was received."""
    points = pushes.select(*LABEL_NAMES, "received_ms", F.inline("points"))
    received_ns = F.col("received_ms") * 1_000_000
    points = points.withColumn(
        "at_ns", F.when(F.col("end_ns") > 0, F.col("end_ns")).otherwise(received_ns)
    )
    if options.metrics:
        wanted = [F.col("metric").startswith(name) for name in options.metrics]
        points = points.filter(reduce(Column.__or__, wanted))
    return points


def contributions(
    points: DataFrame, heads: DataFrame | None = None, *, has_cumulative: bool = True
) -> DataFrame:
    """Return the value that each metric point adds to its window: the observation of a gauge, or
    the growth of any other kind of metric.

    `heads` contains the last point of every series before `points`. Clients with delta temporality
    send no cumulative points. If `has_cumulative` is false, a shuffle is avoided.
    """
    added = points.filter("not is_cumulative").select(*CONTRIBUTION)
    if not has_cumulative:
        return added
    return added.unionByName(growth(points.filter("is_cumulative"), heads).select(*CONTRIBUTION))


def growth(points: DataFrame, heads: DataFrame | None = None) -> DataFrame:
    """Return cumulative metric points whose values are replaced by their growth since the previous
    point of the series. `heads` contains the last point of every series before `points`.

    If a point is not later than the previous point, its growth is 0, because the previous point
    includes it.
    """
    both = points.withColumn("is_head", F.lit(False))
    if heads is not None:
        old = heads.withColumn("is_head", F.lit(True))
        both = both.unionByName(old, allowMissingColumns=True)
    series = Window.partitionBy(*SERIES)
    order = series.orderBy("at_ns", F.desc("is_head"), "value", "count")
    known_ns = F.max(F.when(F.col("is_head"), F.col("at_ns"))).over(series)
    both = both.withColumn("known_ns", known_ns).filter(
        "is_head or known_ns is null or at_ns > known_ns"
    )
    before = F.lag(F.struct("at_ns", "start_ns", *VALUES)).over(order)
    both = both.withColumn("before", before).filter(
        "not is_head and (before is null or at_ns > before.at_ns)"
    )
    return both.withColumn("restarted", F.expr(_RESTARTED)).selectExpr(
        *(name for name in CONTRIBUTION if name not in VALUES),
        "if(restarted, value, value - before.value) as value",
        "if(restarted, count, count - before.count) as count",
        "if(restarted, sum, sum - before.sum) as sum",
        "bounds",
        f"if(restarted, counts, {_COUNTS_GROWN}) as counts",
    )


_COUNTS_GROWN = "zip_with(counts, before.counts, (now, was) -> now - was)"
_RESTARTED = f"""
before is null
or coalesce(start_ns > 0 and start_ns >= before.at_ns, false)
or coalesce(value < before.value, false)
or coalesce(count < before.count or bounds <> before.bounds, false)
or coalesce(exists({_COUNTS_GROWN}, grew -> grew < 0), false)
"""


def heads_after(points: DataFrame, heads: DataFrame | None = None) -> DataFrame:
    """Return the last point of every cumulative metric series, from `points` and the earlier
    `heads`."""
    last_points = points.filter("is_cumulative").select(*HEAD)
    if heads is not None:
        last_points = last_points.unionByName(heads.select(*HEAD))
    rest = [name for name in HEAD if name not in SERIES]
    last = F.max_by(F.struct(*rest), F.struct("at_ns", "value", "count")).alias("last")
    return last_points.groupBy(*SERIES).agg(last).select(*SERIES, "last.*").select(*HEAD)


def with_window(
    contributions: DataFrame, options: RollupOptions, over_ms: int | None = None
) -> DataFrame:
    """Return the contributions (values that metric points add to their windows) with two more
    columns: the start of the window, in ms since 1970, and `is_late`.

    `is_late` is true if the window was already over at `over_ms`, so that it was written before.
    """
    begins = F.expr(f"received_ms - pmod(received_ms, {options.window_ms})")
    placed = contributions.withColumn("window_ms", begins)
    return placed.withColumn("is_late", is_over(options, over_ms))


def is_over(options: RollupOptions, over_ms: int | None) -> Column:
    """Return a Spark column that is true for rows whose window ends at or before `over_ms`, in ms
    since 1970. If `over_ms` is None, no window is over."""
    if over_ms is None:
        return F.lit(False)
    return F.col("window_ms") + options.window_ms <= over_ms


def rolled_up(contributions: DataFrame, options: RollupOptions) -> DataFrame:
    """Return one row for each window, metric and group; see `docs/telemetry.md`.

    The `contributions` must have the columns that `with_window` adds. Sums have a total and a rate.
    Gauges have the mean, minimum, maximum and quantiles of the observations. Histograms have all of
    these except minimum and maximum. SameRowsWhenRunAgain: values are added in sorted order, so
    that a repeated batch produces identical rows. Otherwise readers of the output topic could not
    recognise repeated records.
    """
    by = [column_of(name) for name in options.by]
    keyed = contributions
    for name, column in zip(options.by, by, strict=True):
        if name not in LABEL_NAMES and name != "attributes":
            attribute = F.from_json("attributes", "map<string,string>")[name]
            keyed = keyed.withColumn(column, attribute)
    is_gauge, is_histogram = F.col("kind") == GAUGE, F.col("kind") == HISTOGRAM
    seen = F.when(is_gauge, F.col("value"))
    added = F.when(F.col("kind") == SUM, F.col("value")).when(is_histogram, F.col("sum"))
    histogram = F.when(is_histogram, F.struct("bounds", "counts"))
    grouped = keyed.groupBy("window_ms", "is_late", *by, "metric", "unit", "kind").agg(
        F.size(F.collect_set("client_instance_id")).alias("clients"),
        F.count(F.lit(1)).alias("points"),
        F.sum("count").alias("count"),
        F.array_sort(F.collect_list(added)).alias("added"),
        F.array_sort(F.collect_list(seen)).alias("seen"),
        F.min(seen).alias("min"),
        F.max(seen).alias("max"),
        F.percentile(seen, F.array(*map(F.lit, SHARES))).alias("of_gauges"),
        F.array_sort(F.collect_list(histogram)).alias("histograms"),
    )
    of_histograms = _arrow_udf(_quantiles_of, ArrayType(DoubleType()))
    with_quantiles = grouped.withColumn("of_histograms", of_histograms(F.col("histograms")))
    return with_quantiles.selectExpr(*_rollup_columns(by, options.window_ms))


def _sum_of(column: str) -> str:
    """Return an SQL expression for the sum of an array. The sum of an empty array is 0."""
    return f"if(size({column}) > 0, aggregate({column}, 0D, (sum, one) -> sum + one), null)"


_ADDED, _SEEN = _sum_of("added"), _sum_of("seen")


def _rollup_columns(by: Sequence[str], window_ms: int) -> list[str]:
    seconds = window_ms / 1_000
    return [
        "timestamp_millis(window_ms) as window_start",
        f"timestamp_millis(window_ms + {window_ms}) as window_end",
        *by,
        "metric",
        "unit",
        "kind",
        f"lower(metric) rlike '{ERROR_NAMES}' as is_error",
        "clients",
        "points",
        "count as observations",
        f"{_ADDED} as total",
        f"if(kind = '{HISTOGRAM}', count, {_ADDED}) / {seconds} as rate",
        f"if(kind = '{HISTOGRAM}', {_ADDED} / nullif(count, 0), {_SEEN} / size(seen)) as mean",
        "min",
        "max",
        "coalesce(of_gauges, of_histograms)[0] as p50",
        "coalesce(of_gauges, of_histograms)[1] as p99",
        "is_late",
    ]


def _quantiles_of(histograms: pa.Array) -> pa.Array:
    found: list[Any] = []
    for group in histograms.to_pylist():
        found.append(quantiles([(one["bounds"], one["counts"]) for one in group], SHARES))
    return pa.array(found, pa.list_(pa.float64()))
