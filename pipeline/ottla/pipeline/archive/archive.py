"""An archive: topics as Parquet under topic=…/date=…/hour=…, each record in it exactly once.

A streaming query writes it through Spark's file sink: the offsets of each batch are in the
checkpoint before it is read, and its files count only once the sink's log (`_spark_metadata`)
names them.  So Spark, which reads that log, sees each record once, whatever died when.
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
"""Where the query keeps how far it is, within the output: names with a low line are no data."""
PARQUET = {
    # Spark's own default, INT96, is deprecated and unordered: its statistics help nobody.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings of the session that an archive is written with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """What is archived, where and how."""

    output: str
    """The directory, or any URL that Spark writes to."""
    name: str
    """The query's name; its shadow group is spark-<name>."""
    source: Mapping[str, str]
    """Options of `format("ottla")`: addresses, topics, where to begin."""
    schema: str | None = None
    """A DDL, or a file with one: values are JSON of this schema.  None: bytes as they are."""
    transform: Transform | None = None
    """What else to do to the records (with date and hour added); keeps topic, date and hour."""
    checkpoint: str | None = None
    """Where the checkpoint is; None for `_checkpoint` within the output."""
    trigger_s: float | None = None
    """Seconds from the start of a batch to that of the next; None: all there is, then end."""
    sink: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's Parquet writer."""

    @property
    def checkpoint_path(self) -> str:
        """Return where the checkpoint is."""
        return self.checkpoint or f"{self.output.rstrip('/')}/{CHECKPOINT}"


@contextmanager
def own_place(options: ArchiveOptions) -> Iterator[tuple[int, ...]]:
    """Be the one that writes an archive, as far as it lies on this machine.

    Yields what the session must keep open (`SessionOptions.kept_open`).

    ConfigError when another process does, or where the log of Spark's sink would hide what is
    there, or take new batches for old ones.
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
    """Refuse a checkpoint that does not know of batches which the sink's log has.

    The sink takes a batch for written whose number its log has: it would skip what a new query,
    or one put back to an older state, gives those numbers.
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
    """Start the query that archives; it goes on where its checkpoint says."""
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
    """Return the keywords of `DataStreamWriter.trigger` for so many seconds, or for once (None)."""
    if trigger_s is None:
        return {"availableNow": True}
    return {"processingTime": f"{round(trigger_s * MILLISECONDS)} milliseconds"}


def arranged(records: "DataFrame", options: ArchiveOptions) -> "DataFrame":
    """Return records in the columns of the archive; ConfigError where that can not be.

    Bytes as they are: the columns of `format("ottla")`.  JSON: `value` is a struct, `bad_value` the
    bytes that did not fit.  A transform gets either, and returns what it likes besides topic, date
    and hour.
    """
    schema = None if options.schema is None else read_schema(options.schema)
    found = shaped(records, schema)
    if options.transform is not None:
        found = _transformed(found, options.transform)
    check_columns(options.output, found.schema)
    return found


def check_columns(output: str, schema: "StructType") -> None:
    """Raise ConfigError where a column would get another type than it has in the archive."""
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
    """Return which columns of both have different types; columns may come and go."""
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
    """Return records with date and hour, and values read as JSON where there is a schema."""
    placed = with_hour(records)
    return placed if schema is None else with_json_value(placed, schema)
