"""`format("ottla")`: topics as a data source of Spark, with the options of Spark's Kafka
connector."""

# ruff: noqa: N802 - Spark names these methods

import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.pipeline.one_sentence import one_sentence
from ottla.pipeline.read.arrow_schema import spark_ddl
from ottla.pipeline.read.source_options import parse_columns, parse_source_options
from ottla.pipeline.run.quiet_exit import end_quietly

NAME = "ottla"


class OttlaDataSource(DataSource):
    """Data source of Spark for the topics of an Ottla or Kafka cluster."""

    @classmethod
    def name(cls) -> str:
        """Return the name by which queries select this source in `format(…)`."""
        return NAME

    def schema(self) -> str:
        """Return the requested columns of the topics as Spark's DDL."""
        with one_sentence("read options"):
            return spark_ddl(parse_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query over the topics."""
        from ottla.pipeline.read.batch_reader import TopicReader

        with one_sentence("read options"):
            return TopicReader(parse_source_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query over the topics."""
        from ottla.pipeline.read.stream_reader import TopicStreamReader

        return TopicStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query into topics."""
        from ottla.pipeline.write.batch_writer import make_batch_writer

        with one_sentence("write to topics"):
            return make_batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query into topics."""
        from ottla.pipeline.write.stream_writer import make_stream_writer

        with one_sentence("write to topics"):
            return make_stream_writer(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Register `format("ottla")` in a Spark session, and start committing the progress of the
    session's streams.

    A repeated call has no effect. If the package is installed, Spark also finds the format without
    this call (see `pyspark_ottla`), but then no progress is committed.

    When the program ends, the session's queries are stopped, and the end of their last batch is
    committed.

    In a local session without PYSPARK_PYTHON, workers run this Python after this call. By default,
    Spark would run the `python3` on PATH, which lacks the packages of a virtual environment that is
    not activated.
    """
    from ottla.pipeline.read.shadow import listen

    use_this_python(spark)
    if not _is_known(spark):
        spark.dataSource.register(OttlaDataSource)
    listen(spark, NAME)
    end_quietly(spark)


def use_this_python(spark: SparkSession) -> None:
    """Configure a local Spark session to start its workers with this Python, unless the user has
    set another Python."""
    context: Any = getattr(spark, "_sc", None)  # None under Spark Connect.
    if context is None or not context.master.startswith("local"):
        return  # On another machine, this path may not exist.
    is_chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if not is_chosen:
        context.pythonExec = sys.executable


def _is_known(spark: SparkSession) -> bool:
    """Return whether `format("ottla")` is already registered in a Spark session. Spark would warn
    about a repeated registration."""
    session: Any = getattr(spark, "_jsparkSession", None)  # None under Spark Connect.
    if session is None:
        return False
    return bool(session.sessionState().dataSourceManager().dataSourceExists(NAME))
