"""Adds the missing records of a time span to an archive, in a batch query.

If a stream writes to the same archive, the backfill omits records after the stream's position,
which the stream will write. Records that the archive already contains are not written again. A
record is identified by topic, partition, offset and timestamp, because a recreated topic uses the
same offsets again. A backfill may therefore be repeated, may overlap another backfill or a stream's
output, and may be continued after a crash.

If a streaming query wrote the archive, the log of Spark's file sink determines which files count.
One rename adds all new files to the log, after they are in place (`archive_directory`). Otherwise,
the files are written with Spark's normal append.
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

IDENTITY = ("topic", "partition", "offset", "timestamp")
"""Names of the columns that identify a record in an archive."""
STAGING = "_ottla-staging"
"""Name of the directory for a backfill's new files until the log of Spark's file sink names them.
Its underscore hides it from readers."""
MICROSECONDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """Time span [start_ms, end_ms), in ms since 1970, whose records are archived."""

    start_ms: int
    end_ms: int
    late_ms: int
    """Maximum delay in ms with which a record may be appended to its partition after records with
    newer timestamps. Reading of a partition ends at the first record whose timestamp is `end_ms +
    late_ms` or newer."""

    def source_options(self) -> dict[str, str]:
        """Return options of Spark's data source `format("ottla")` that read the records of the time
        span. They may also read a few records outside of it."""
        return {
            "startingTimestamp": str(self.start_ms),
            "startingOffsetsByTimestampStrategy": "latest",
            "endingTimestamp": str(self.end_ms + self.late_ms),
        }


def backfill(spark: "SparkSession", options: ArchiveOptions, span: TimeSpan) -> int:
    """Add the missing records of a time span to an archive. Returns the number of added records.

    Raises ConfigError if the archive lacks the columns that identify records, or if another process
    has the archive's lock.
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
    """Return the options of Spark's data source `format("ottla")` that read a time span of the
    archive's topics."""
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
    lost = [name for name in IDENTITY if name not in found.columns]
    if lost:
        raise ConfigError(
            "--transform",
            f"drops {', '.join(lost)}, by which a backfill tells what the archive has already",
        )
    there = _there(spark, found, span, directory)
    return found if there is None else found.join(there, list(IDENTITY), "left_anti")


def _left_by_stream(
    spark: "SparkSession", records: "DataFrame", options: ArchiveOptions
) -> "DataFrame":
    """Return the records that a backfill must write: those before the position of the stream that
    writes the archive. The stream itself writes all later records."""
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
    """Return the identities of the archive's records in the time span, or None if the archive is
    empty. An identity is topic, partition, offset and timestamp."""
    from pyspark.sql import functions as f

    if directory.has_log:
        is_empty = not directory.live()
    else:
        is_empty = next(directory.data_files(), None) is None
    if is_empty:
        return None
    # The schema is given, because Spark would infer a numeric type for a topic named 2024.
    stored = spark.read.schema(wanted.schema).parquet(str(directory.path))
    first, last = (
        f.date_from_unix_date(f.lit(ms * MICROSECONDS // (MICROSECONDS_AN_HOUR * 24)))
        for ms in (span.start_ms, span.end_ms)
    )
    # Spark does not read the directories of other days.
    return stored.where((f.col("date") >= first) & (f.col("date") <= last)).select(*IDENTITY)


def _row_count(staging: Path) -> int:
    from pyarrow import parquet

    return sum(int(parquet.read_metadata(path).num_rows) for path in staging.rglob("*.parquet"))


def _take_in(directory: ArchiveDirectory, staging: Path) -> None:
    """Move the finished files of a backfill to their final directories, and add them to the log of
    Spark's file sink."""
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
