"""Fills an archive with what it lacks of a span of time, in a batch.

What a stream that writes here has not come to yet is left to it.  What is there already is not
written again: records are told by topic, partition, offset and
timestamp (a topic made again has the same offsets again).  So a backfill may be repeated, may
overlap another or what a stream wrote, and may go on after a crash.

Where a streaming query wrote, its log says what counts; the new files are named in it by one
rename, after all of them are in place (`archive_directory`).  Elsewhere Spark's own append is used.
"""

import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.model.errors import ConfigError
from ottla.pipeline.archive.archive import FORMAT, PARQUET, ArchiveOptions, arranged
from ottla.pipeline.archive.archive_directory import (
    ArchiveDirectory,
    changing,
    local_path,
    sync_directory,
)
from ottla.pipeline.archive.checkpoint import committed_position
from ottla.pipeline.archive.sink_log import SinkLogEntry
from ottla.pipeline.run.transforms import MICROSECONDS_AN_HOUR, PLACED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOLD_BY = ("topic", "partition", "offset", "timestamp")
"""The columns that tell one record from all others."""
STAGING = "_ottla-staging"
"""Where new files are until they are named; a low line hides it from readers."""
MICROSECONDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """The records whose timestamps lie in [start_ms, end_ms)."""

    start_ms: int
    end_ms: int
    late_ms: int
    """How much older than its predecessors a record may be: reading goes on for so long behind
    the first record that is past the end."""

    def source_options(self) -> dict[str, str]:
        """Return the options of `format("ottla")` that read it, and not much more."""
        return {
            "startingTimestamp": str(self.start_ms),
            "startingOffsetsByTimestampStrategy": "latest",
            "endingTimestamp": str(self.end_ms + self.late_ms),
        }


def backfill(spark: "SparkSession", options: ArchiveOptions, span: TimeSpan) -> int:
    """Add the records of a span that the archive lacks; return how many.

    ConfigError where the archive does not keep what tells records apart, or is being written.
    """
    for key, value in PARQUET.items():
        spark.conf.set(key, value)
    path = local_path(options.output)
    if path is None:
        raise ConfigError("--from", f"{options.output} is not on this machine's disks")
    with changing(path):
        directory = ArchiveDirectory(path)
        if directory.has_log and not directory.files():
            raise ConfigError(
                options.output, "has a stream that has not ended a batch yet; let it do that first"
            )
        shutil.rmtree(path / STAGING, ignore_errors=True)
        staging = path / STAGING / str(uuid.uuid4())
        records = _missing(spark, options, span, directory)
        records.write.options(**options.sink).partitionBy(*PLACED).parquet(str(staging))
        count = _row_count(staging)
        _take_in(directory, staging)
        shutil.rmtree(path / STAGING, ignore_errors=True)
    return count


def source_of(options: ArchiveOptions, span: TimeSpan) -> dict[str, str]:
    """Return the options of `format("ottla")` that read a span of what an archive is made of."""
    source = {
        name: value
        for name, value in options.source.items()
        if name.lower() not in ("startingoffsets", "shadowgroup")
    }
    return {**source, **span.source_options()}


def _missing(
    spark: "SparkSession", options: ArchiveOptions, span: TimeSpan, directory: ArchiveDirectory
) -> "DataFrame":
    from pyspark.sql import functions as f

    records = spark.read.format(FORMAT).options(**source_of(options, span)).load()
    moment = f.unix_micros(f.col("timestamp"))
    wanted = records.where(
        (moment >= span.start_ms * MICROSECONDS) & (moment < span.end_ms * MICROSECONDS)
    )
    if directory.has_log:
        wanted = _left_by_stream(spark, wanted, options)
    found = arranged(wanted, options)
    lost = [name for name in TOLD_BY if name not in found.columns]
    if lost:
        raise ConfigError(
            "--transform",
            f"drops {', '.join(lost)}, by which a backfill tells what the archive has already",
        )
    there = _there(spark, found, span, directory)
    return found if there is None else found.join(there, list(TOLD_BY), "left_anti")


def _left_by_stream(
    spark: "SparkSession", records: "DataFrame", options: ArchiveOptions
) -> "DataFrame":
    """Return the records that the stream will not write itself: those before where it stands."""
    from pyspark.sql import functions as f

    checkpoint = local_path(options.checkpoint_path)
    if checkpoint is None:
        raise ConfigError("--checkpoint", f"{options.checkpoint_path} is not on this machine")
    position = committed_position(checkpoint)
    ends = spark.createDataFrame(
        [(at.topic, at.partition, end) for at, end in sorted(position.items())],
        "topic string, partition int, _end long",
    )
    return (
        records.join(f.broadcast(ends), ["topic", "partition"])
        .where(f.col("offset") < f.col("_end"))
        .select(*records.columns)
    )


def _there(
    spark: "SparkSession", wanted: "DataFrame", span: TimeSpan, directory: ArchiveDirectory
) -> "DataFrame | None":
    """Return what tells the records of the span that the archive has; None when it is empty."""
    from pyspark.sql import functions as f

    if directory.has_log:
        is_empty = not directory.live()
    else:
        is_empty = next(directory.data_files(), None) is None
    if is_empty:
        return None
    # The schema is given: a topic called 2024 would be taken for a number.
    stored = spark.read.schema(wanted.schema).parquet(str(directory.path))
    first, last = (
        f.date_from_unix_date(f.lit(ms * MICROSECONDS // (MICROSECONDS_AN_HOUR * 24)))
        for ms in (span.start_ms, span.end_ms)
    )
    # No directory of another day is looked into.
    return stored.where((f.col("date") >= first) & (f.col("date") <= last)).select(*TOLD_BY)


def _row_count(staging: Path) -> int:
    from pyarrow import parquet

    return sum(int(parquet.read_metadata(path).num_rows) for path in staging.rglob("*.parquet"))


def _take_in(directory: ArchiveDirectory, staging: Path) -> None:
    """Move staged files to their places and have them count."""
    entries = []
    for path in sorted(staging.rglob("*.parquet")):
        place = directory.path / path.relative_to(staging)
        place.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(path, place)
        sync_directory(place.parent)
        entries.append(SinkLogEntry(str(place), place.stat().st_size))
    if directory.has_log and entries:
        last, named = directory.files()[-1]
        directory.replace(last, [*named, *entries])
