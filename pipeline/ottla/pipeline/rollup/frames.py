"""What clients pushed, as windowed rollups: functions from DataFrames to DataFrames.

They start nothing and keep nothing: what a stream must remember between its batches (pushes seen,
the last point of every cumulative series, points of windows that are still open) comes in as a
DataFrame and goes out as one (`rollup_stream.py` keeps it).  So the same functions serve a stream,
a batch over all there is, and a declared pipeline.

PushesCountOnce: a copy of a push adds nothing.  TotalsAreExact: the totals of all rows of a series
are what its clients added, however it came: deltas as they are, cumulative points by what they
grew since the point before, or in full when they began again.  A window is that of the moment at
which the broker received a push: clients' clocks are not trusted.
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
from ottla.telemetry.client_labels import LABEL_NAMES

PUSH_TYPE = from_arrow_type(pushes([]).type)
"""Not told as DDL, since Spark is asked what that means, and declared pipelines forbid to ask."""
PUSH = ("partition", "offset", *(field.name for field in pushes([]).type))
SERIES = ("client_instance_id", "metric", "kind", "attributes", "ordinal")
"""What a series is: one client's word for one thing."""
VALUES = ("value", "count", "sum", "bounds", "counts")
HEAD = (*SERIES, "received_ms", "at_ns", "start_ns", *VALUES)
"""Columns of a series' last point, as it is remembered."""
CONTRIBUTION = (*LABEL_NAMES, "received_ms", "metric", "unit", "kind", "attributes", *VALUES)
"""Columns of what one point adds to its window."""

_arrow_udf: Any = arrow_functions.arrow_udf
"""Its types do not know that it reads type hints, which it prefers."""

WINDOW_MS_DEFAULT = 60_000
SHARES = (0.5, 0.99)
LIKENESS = 0.85
"""Attributes may have any name, but one that is so like a label's is a label's, written wrong."""
ERROR_NAMES = r"(^|[._-])(errors?|fail(ed|ures?)?|rejected|expired|timeouts?)([._-]|$)"
"""Names of metrics that count what went wrong."""


@dataclass(frozen=True)
class RollupOptions:
    """What is rolled up, and by what."""

    window_ms: int = WINDOW_MS_DEFAULT
    by: tuple[str, ...] = ("client_id", "broker_id")
    """Labels of clients, or names of attributes, beside the metric; each becomes a column."""
    metrics: tuple[str, ...] = ()
    """Beginnings of metrics' names; empty for all."""

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
"""Columns that rollups have whatever they are made by."""


def column_of(name: str) -> str:
    """Return a label's or attribute's name as a column's: dots and dashes become underscores."""
    return "".join(sign if sign.isalnum() else "_" for sign in name)


def decoded(records: DataFrame) -> DataFrame:
    """Return one push a record (`PUSH_TYPE`) with its partition and offset."""
    as_push = _arrow_udf(_pushes_of, PUSH_TYPE)
    found = records.select("partition", "offset", as_push(F.col("value")).alias("push"))
    return found.select("partition", "offset", "push.*")


def _pushes_of(values: pa.Array) -> pa.Array:
    return pushes(values.to_pylist())


def first_copies(pushes: DataFrame, seen: DataFrame | None = None) -> DataFrame:
    """Return every push once, the copy that lies first in the log; none of those `seen` before."""
    order = Window.partitionBy("push_id").orderBy("partition", "offset")
    read = pushes.filter(F.col("push_id").isNotNull())
    numbered = read.withColumn("copy", F.row_number().over(order))
    first = numbered.filter("copy = 1").select(*PUSH)  # to drop a column is to ask Spark
    return first if seen is None else first.join(seen.select("push_id"), "push_id", "left_anti")


def points_of(pushes: DataFrame, options: RollupOptions) -> DataFrame:
    """Return every point of pushes; `at_ns` is its time, or when it was received."""
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
    """Return what each point adds to its window: observations of gauges, growth of all else.

    Clients that are asked for deltas have no cumulative points: who knows that spares a shuffle.
    """
    added = points.filter("not is_cumulative").select(*CONTRIBUTION)
    if not has_cumulative:
        return added
    return added.unionByName(growth(points.filter("is_cumulative"), heads).select(*CONTRIBUTION))


def growth(points: DataFrame, heads: DataFrame | None = None) -> DataFrame:
    """Return cumulative points with what they grew by instead of their values.

    A point that is not later than one before it adds nothing: what it tells is in that one already.
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
    return both.withColumn("began_anew", F.expr(_BEGAN_ANEW)).selectExpr(
        *(name for name in CONTRIBUTION if name not in VALUES),
        "if(began_anew, value, value - before.value) as value",
        "if(began_anew, count, count - before.count) as count",
        "if(began_anew, sum, sum - before.sum) as sum",
        "bounds",
        f"if(began_anew, counts, {_COUNTS_GROWN}) as counts",
    )


_COUNTS_GROWN = "zip_with(counts, before.counts, (now, was) -> now - was)"
_BEGAN_ANEW = f"""
before is null
or coalesce(start_ns > 0 and start_ns >= before.at_ns, false)
or coalesce(value < before.value, false)
or coalesce(count < before.count or bounds <> before.bounds, false)
or coalesce(exists({_COUNTS_GROWN}, grew -> grew < 0), false)
"""


def heads_after(points: DataFrame, heads: DataFrame | None = None) -> DataFrame:
    """Return the last point of every cumulative series."""
    told = points.filter("is_cumulative").select(*HEAD)
    if heads is not None:
        told = told.unionByName(heads.select(*HEAD))
    rest = [name for name in HEAD if name not in SERIES]
    last = F.max_by(F.struct(*rest), F.struct("at_ns", "value", "count")).alias("last")
    return told.groupBy(*SERIES).agg(last).select(*SERIES, "last.*").select(*HEAD)


def with_window(
    contributions: DataFrame, options: RollupOptions, over_ms: int | None = None
) -> DataFrame:
    """Add the beginning of each contribution's window (milliseconds since the Unix epoch).

    And whether it `is_late`: its window was over at `over_ms`, and told.
    """
    begins = F.expr(f"received_ms - pmod(received_ms, {options.window_ms})")
    placed = contributions.withColumn("window_ms", begins)
    return placed.withColumn("is_late", is_over(options, over_ms))


def is_over(options: RollupOptions, over_ms: int | None) -> Column:
    """Return whether a window is over, by the moment up to which all are; None when none is."""
    if over_ms is None:
        return F.lit(False)
    return F.col("window_ms") + options.window_ms <= over_ms


def rolled_up(contributions: DataFrame, options: RollupOptions) -> DataFrame:
    """Return one row for each window, metric and whatever it is made by; see `docs/telemetry.md`.

    `contributions` have their window.  Sums have a total and a rate, gauges mean, min, max and
    quantiles of what was observed, histograms all but min and max.  SameRowsWhenRunAgain: values
    are added in their own order, so rows are the same to the last bit; a topic's records could not
    be known as replays otherwise.
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
    told = grouped.withColumn("of_histograms", of_histograms(F.col("histograms")))
    return told.selectExpr(*_rollup_columns(by, options.window_ms))


def _sum_of(column: str) -> str:
    """Return the sum of an array; none of none."""
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
    told: list[Any] = []
    for group in histograms.to_pylist():
        told.append(quantiles([(one["bounds"], one["counts"]) for one in group], SHARES))
    return pa.array(told, pa.list_(pa.float64()))
