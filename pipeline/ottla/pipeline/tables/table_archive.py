"""Archive of a topic in an Iceberg or Delta table, written by a Spark stream. Each record is
written once.

Spark writes the Parquet files of a batch below the table's location, where no reader sees them. The
driver then adds these files and the position after the batch to the table in one commit, like the
commit of `ottla export` (`table_sink.FileTable`). Only the table's position counts: each run begins
at that position, with a temporary checkpoint of its own. A table can therefore be rolled back, and
`ottla export` and this archive can continue each other's tables.

The alternative, the sinks that Delta and Iceberg have for Spark, was rejected. Iceberg's runtime
does not exist for any Spark version that the data source supports, and Delta's exists for one of
two. Both identify batches by a checkpoint, and rows are repeated or lost if the checkpoint is lost.
"""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.model.errors import ConfigError
from ottla.pipeline.archive.archive import FORMAT, PARQUET, trigger_words
from ottla.pipeline.archive.checkpoint import parse_stream_position
from ottla.pipeline.export.export import log_bounds
from ottla.pipeline.export.table_columns import READ_COLUMNS, is_same_schema
from ottla.pipeline.export.table_position import LogBounds
from ottla.pipeline.export.table_sink import FileTable
from ottla.pipeline.one_sentence import one_sentence
from ottla.pipeline.read.cluster_queries import FIRST_ANSWER_TIMEOUT_S, ClusterQueries
from ottla.pipeline.read.source_options import parse_source_options
from ottla.pipeline.run.transforms import Transform, read_schema, with_json_value
from ottla.pipeline.tables.batch_position import position_after, starting_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COMPRESSION = "zstd"
"""Compression codec of the Parquet files of an archived table, the same as the default of `ottla
export`."""
NO_SUCCESS_FILES = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
"""Hadoop's setting, with its value, for an empty file _SUCCESS in the directory of the data files.
It is disabled, because the file is not part of the table."""
SPARK_SCHEMES = {"s3://": "s3a://", "s3n://": "s3a://"}
"""URL scheme that Spark knows, by the corresponding scheme that catalogs use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableArchiveOptions:
    """Source, columns and options of the streaming query that writes a table."""

    topic: str
    name: str
    """Name of the streaming query. The query commits its progress to the group spark-<name>."""
    source: Mapping[str, str]
    """Options of Spark's data source `format("ottla")`, by name. `startingOffsets` applies only to
    a new table."""
    schema: str | None = None
    """Schema of the records' JSON values: a DDL text, or the path of a file that contains one. None
    archives raw bytes."""
    transform: Transform | None = None
    """Function of the user that transforms the rows further. None for no transformation."""
    trigger_s: float | None = None
    """Seconds between the starts of two batches of the streaming query. None processes all records
    that exist now, and then ends."""
    sink: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's Parquet writer, by name."""


def source_at(table: FileTable, options: TableArchiveOptions) -> dict[str, str]:
    """Return the options of the stream's source, which begins at the table's position.

    Raises RefusedError if records are lost, or if the table was written from another topic. Raises
    ConnectionLostError if no broker responds.
    """
    source = {**options.source, "includeHeaders": "true"}
    bounds = _bounds(source, options.topic)
    if table.position is not None:
        source["startingOffsets"] = starting_offsets(table.position, bounds)
    return source


def start_table_archive(
    spark: "SparkSession",
    table: FileTable,
    options: TableArchiveOptions,
    source: Mapping[str, str],
    checkpoint: Path,
) -> "StreamingQuery":
    """Start and return the streaming query that writes a table. `checkpoint` is an empty directory
    of this machine."""
    for key, value in PARQUET.items():
        spark.conf.set(key, value)
    rows = table_rows(spark.readStream.format(FORMAT).options(**source).load(), options)
    prepare(table, rows)
    return (
        rows.writeStream.queryName(options.name)
        .foreachBatch(TableBatches(table, options, checkpoint))
        .option("checkpointLocation", checkpoint.as_uri())
        .trigger(**trigger_words(options.trigger_s))
        .start()
    )


def table_rows(records: "DataFrame", options: TableArchiveOptions) -> "DataFrame":
    """Return records as rows of the table, in the columns of `ottla export`, or in the columns that
    the user's transform returns."""
    from pyspark.sql import functions as f

    found = records
    values = ["value"]
    if options.schema is not None:
        found = with_json_value(records, read_schema(options.schema))
        values.append("bad_value")
    rows = found.select(
        "key",
        *values,
        "headers",
        "topic",
        *(name for name in READ_COLUMNS if name in ("partition", "offset", "timestamp")),
        f.col("timestampType").alias("timestamp_type"),
    )
    return rows if options.transform is None else options.transform(rows)


def prepare(table: FileTable, rows: "DataFrame") -> None:
    """Create the table of the archive if it does not exist. Raises ConfigError if the existing
    table has other columns than `rows`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = nullable(to_arrow_schema(rows.schema, timezone="UTC"))
    if table.schema is None:
        table.prepare(schema)
    elif not is_same_schema(table.schema, schema):
        has, want = columns_text(table.schema, schema), columns_text(schema, table.schema)
        raise ConfigError(
            table.name, f"has {has}, and the rows have {want}; archive into another table"
        )


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the Spark schema with all columns nullable, as in the files that Spark writes."""
    return pa.schema([one.with_nullable(True) for one in schema])


def columns_text(schema: pa.Schema, other: pa.Schema) -> str:
    """Return a text for an error message about a table's columns: the columns of `schema` that
    `other` lacks or has with another type. If only the order differs, the text contains the order
    of all columns."""
    found = [
        f"the column {one.name} as {one.type}"
        for one in schema
        if one.name not in other.names
        or not is_same_schema(pa.schema([one]), pa.schema([other.field(one.name)]))
    ]
    return ", ".join(found) or f"the columns in the order {', '.join(schema.names)}"


class TableBatches:
    """Function object that Spark calls for each batch, to write the batch into one table."""

    def __init__(self, table: FileTable, options: TableArchiveOptions, checkpoint: Path) -> None:
        self._table = table
        self._options = options
        self._checkpoint = checkpoint

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """Write the data files of a batch, and add them to the table in one commit."""
        with one_sentence("write the table"):
            self._write(rows, batch_id)

    def _write(self, rows: "DataFrame", batch_id: int) -> None:
        # Spark has written the end of the batch before it calls this.
        end = parse_stream_position((self._checkpoint / "offsets" / str(batch_id)).read_text())
        commit_id = uuid.uuid4().hex
        position = position_after(self._table.position, end, self._options.topic, commit_id)
        if position is None:
            return
        location = f"{self._table.data_location}/{commit_id}"
        target = spark_location(location)
        (
            rows.write.option(NO_SUCCESS_FILES, "false")
            .option("compression", COMPRESSION)
            .options(**self._options.sink)
            .parquet(target)
        )
        written = rows.sparkSession.read.schema(rows.schema).parquet(target)
        files = [f"{location}/{os.path.basename(one)}" for one in written.inputFiles()]
        self._table.commit_files(files, position)


def spark_location(location: str) -> str:
    """Return a table's location with the URL scheme that Spark knows, such as s3a:// in place of
    s3://."""
    for scheme, name in SPARK_SCHEMES.items():
        if location.startswith(scheme):
            return name + location.removeprefix(scheme)
    return location


def _bounds(source: Mapping[str, str], topic: str) -> LogBounds:
    read: Any = parse_source_options(source, is_stream=True).read
    asking = ClusterQueries(read, first_answer_timeout_s=FIRST_ANSWER_TIMEOUT_S)
    try:
        return log_bounds(asking, topic)
    finally:
        asking.close()
