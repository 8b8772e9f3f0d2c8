"""Archives topics as Parquet files under topic=…/date=…/hour=…, each record exactly once.

A streaming query writes the archive through Spark's file sink. Spark stores the offsets of each
batch in the checkpoint before it reads the batch. The files of a batch count only once the log of
the sink (`_spark_metadata`) names them. Spark's readers use that log, so they see each record once,
even after a crash at any point.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ConfigError
from ottla.pipeline.archive.archive_directory import ArchiveDirectory, changing, local_path
from ottla.pipeline.archive.checkpoint import NONE, last_batch
from ottla.pipeline.archive.sink_log import read_order
from ottla.pipeline.run.transforms import PLACED, Transform, read_schema, with_hour, with_json_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

FORMAT = "ottla"
MILLISECONDS = 1_000
CHECKPOINT = "_checkpoint"
"""Name of the directory of the streaming query's checkpoint, within the archive's output directory.
Readers ignore names with a leading underscore."""
PARQUET = {
    # Spark's default, INT96, is deprecated.  It has no order, so its statistics are useless.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings of the Spark session that writes an archive of Parquet files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Source, output and options of the streaming query that writes an archive."""

    output: str
    """Output directory of the archive, or any URL to which Spark can write."""
    name: str
    """Name of the streaming query. The query commits its progress to the group spark-<name>."""
    source: Mapping[str, str]
    """Options of Spark's data source `format("ottla")`, by name: addresses, topics, starting
    offsets."""
    schema: str | None = None
    """Schema of the records' JSON values: a DDL text, or the path of a file that contains one. None
    archives raw bytes."""
    transform: Transform | None = None
    """Function of the user that transforms the records further, after the columns date and hour
    were added. Its result must contain topic, date and hour. None for no transformation."""
    checkpoint: str | None = None
    """Directory of the streaming query's checkpoint. None means `_checkpoint` within the output
    directory."""
    trigger_s: float | None = None
    """Seconds between the starts of two batches of the streaming query. None processes all records
    that exist now, and then ends."""
    sink: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's Parquet writer, by name."""

    @property
    def checkpoint_path(self) -> str:
        """Directory of the streaming query's checkpoint, as configured or by default."""
        return self.checkpoint or f"{self.output.rstrip('/')}/{CHECKPOINT}"


@contextmanager
def own_place(options: ArchiveOptions) -> Iterator[tuple[int, ...]]:
    """Lock an archive for writing, if it is on this machine.

    Yields the file descriptors that the Spark session must keep open (`SessionOptions.kept_open`).

    Raises ConfigError if another process has the lock. Also raises ConfigError if the log of
    Spark's file sink would hide existing data, or would cause the sink to skip new batches as
    already written.
    """
    path = local_path(options.output)
    if path is None:
        yield ()
        return
    with changing(path) as lock:
        directory = ArchiveDirectory(path)
        if not directory.has_log and next(directory.data_files(), None) is not None:
            raise ConfigError(
                options.output,
                "has Parquet files of no stream, which Spark's readers would no longer see once "
                "a stream writes here; archive into another directory",
            )
        _check_checkpoint(options, directory)
        yield (lock,)


def _check_checkpoint(options: ArchiveOptions, directory: ArchiveDirectory) -> None:
    """Raise ConfigError if the log of Spark's file sink contains batches that the checkpoint does
    not.

    The sink skips a batch if its log already contains the batch's number. It would therefore lose
    the batches of a new query, or of a query whose checkpoint was restored to an older state.
    """
    checkpoint = local_path(options.checkpoint_path)
    if checkpoint is None or not directory.has_log:
        return
    written = max((file.batch for file in read_order(directory.log_names())), default=NONE)
    planned = last_batch(checkpoint, "offsets")
    if planned < written:
        raise ConfigError(
            options.output,
            f"has batches up to {written}, and the checkpoint {checkpoint} up to {planned}: the "
            "next would be taken for written; use that stream's own checkpoint, or another "
            "directory",
        )


def start_archive(spark: "SparkSession", options: ArchiveOptions) -> "StreamingQuery":
    """Start and return the streaming query that writes an archive. The query continues from its
    checkpoint if there is one."""
    for key, value in PARQUET.items():
        spark.conf.set(key, value)
    records = spark.readStream.format(FORMAT).options(**options.source).load()
    return (
        arranged(records, options)
        .writeStream.format("parquet")
        .queryName(options.name)
        .partitionBy(*PLACED)
        .option("path", options.output)
        .option("checkpointLocation", options.checkpoint_path)
        .options(**options.sink)
        .trigger(**trigger_words(options.trigger_s))
        .start()
    )


def trigger_words(trigger_s: float | None) -> dict[str, Any]:
    """Return the keyword arguments of Spark's `DataStreamWriter.trigger` for an interval in
    seconds. None means one run over all records that exist now."""
    if trigger_s is None:
        return {"availableNow": True}
    return {"processingTime": f"{round(trigger_s * MILLISECONDS)} milliseconds"}


def arranged(records: "DataFrame", options: ArchiveOptions) -> "DataFrame":
    """Return records in the columns of the archive. Raises ConfigError if the user's transform
    drops a required column.

    Without a schema, the columns are those of Spark's data source `format("ottla")`. With a schema,
    `value` is a struct, and `bad_value` contains the bytes that did not match the schema. The
    user's transform gets the records in one of these forms, and may return any columns besides
    topic, date and hour.
    """
    schema = None if options.schema is None else read_schema(options.schema)
    found = shaped(records, schema)
    if options.transform is not None:
        found = _transformed(found, options.transform)
    check_columns(options.output, found.schema)
    return found


def check_columns(output: str, schema: "StructType") -> None:
    """Raise ConfigError if a column of `schema` has another type in the existing archive."""
    path = local_path(output)
    before = None if path is None else ArchiveDirectory(path).spark_schema()
    if before is None:
        return
    from pyspark.sql.types import StructType

    clashes = clashing(StructType.fromJson(before), schema)
    if clashes:
        raise ConfigError(
            output, f"has {'; '.join(clashes)}; archive into another directory, or as before"
        )


def clashing(before: "StructType", after: "StructType", within: str = "") -> list[str]:
    """Return the names of the columns whose types differ between two Spark schemas. Columns that
    only one schema has are ignored."""
    from pyspark.sql.types import StructType

    found = []
    types = {column.name: column.dataType for column in after.fields}
    for column in before.fields:
        name, was = column.name, column.dataType
        type_ = types.get(name)
        if isinstance(type_, StructType) and isinstance(was, StructType):
            found += clashing(was, type_, f"{within}{name}.")
        elif type_ is not None and type_ != was:
            found.append(
                f"the column {within}{name} as {was.simpleString()}, "
                f"which would become {type_.simpleString()}"
            )
    return found


def _transformed(records: "DataFrame", transform: Transform) -> "DataFrame":
    changed = transform(records)
    missing = [name for name in PLACED if name not in getattr(changed, "columns", ())]
    if missing:
        raise ConfigError(
            "--transform",
            f"must return a DataFrame that still has the columns {', '.join(PLACED)}: "
            f"{', '.join(missing)} is missing",
        )
    return changed


def shaped(records: "DataFrame", schema: "StructType | None") -> "DataFrame":
    """Return records with the additional columns date and hour. If there is a schema, the records'
    values are parsed as JSON."""
    placed = with_hour(records)
    return placed if schema is None else with_json_value(placed, schema)
