"""Columns of Spark with a schema registry."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.schemas import Schema, SchemaFormat
from ottla.model.errors import ConfigError
from tests.pipeline.test_spark_page import program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO = """{"type": "record", "name": "Reading", "fields": [
    {"name": "station", "type": "string"},
    {"name": "celsius", "type": ["null", "double"]},
    {"name": "tags", "type": {"type": "array", "items": "string"}}]}"""
DDL = "station string, celsius double, tags array<string>, added int"


def test_columns_are_read_as_they_were_written(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from ottla.pipeline.registry.registry_columns import from_registry, to_registry

    rows = [("north", 21.5, ["a"]), ("south", None, [])]
    frame = spark.createDataFrame(rows, "station string, celsius double, tags array<string>")
    place = str(tmp_path)
    plain = F.struct("station", "celsius", "tags")
    records = frame.select(
        to_registry(plain, place, "avro", AVRO).alias("avro"),
        to_registry(plain, place, "json", Schema("true", SchemaFormat.JSON)).alias("json"),
    )
    found = records.select(
        from_registry("avro", place, DDL).alias("avro"),
        from_registry(F.col("json"), place, DDL).alias("json"),
        from_registry(F.lit(b"{}"), place, DDL, is_corrupt_null=True).alias("corrupt"),
        from_registry(F.lit(None).cast("binary"), place, DDL).alias("tombstone"),
    ).collect()
    for (station, celsius, tags), row in zip(rows, found, strict=True):
        for column in (row.avro, row.json):
            assert (column.station, column.celsius, column.tags) == (station, celsius, tags)
            assert column.added is None
        assert (row.corrupt, row.tombstone) == (None, None)
    warm = program("warm_readings")(spark, records.select(F.col("avro").alias("value")), place)
    written = warm.select("station", from_registry("value", place, "celsius double").alias("r"))
    with pytest.raises(Exception, match="not with a schema id"):
        spark.range(1).select(from_registry(F.lit(b"{}"), place, DDL)).collect()
    assert [(row.station, row.r.celsius) for row in written.collect()] == [("north", 21.5)]
    with pytest.raises(ConfigError, match="to_registry writes AVRO and JSON"):
        to_registry("x", place, "t", Schema("", SchemaFormat.PROTOBUF))
