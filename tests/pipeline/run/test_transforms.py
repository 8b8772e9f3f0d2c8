"""Transformations of records between a topic and an archive."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.model.errors import ConfigError
from ottla.pipeline.run.transforms import load_function, read_schema, with_hour, with_json_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENTS = {
    "2026-07-31T23:59:59.999999": (date(2026, 7, 31), 23),
    "2026-08-01T00:00:00": (date(2026, 8, 1), 0),
    "1970-01-01T00:00:00": (date(1970, 1, 1), 0),
    "1969-12-31T23:59:59.999": (date(1969, 12, 31), 23),
}
VALUES: dict[bytes | None, tuple[Any, bool]] = {
    b'{"id": 1, "name": "a"}': ((1, "a"), False),
    b'{"id": 2}': ((2, None), False),
    b'{"id": 3, "name": "c", "more": []}': ((3, "c"), False),
    b"{}": ((None, None), False),
    b'{"id": "four", "name": "d"}': ((None, "d"), True),
    b"no json": ((None, None), True),
    b"\xff\xfe": ((None, None), True),
    b"": (None, True),
    None: (None, False),
}
"""A parsed value, and its bytes if they are kept as bad."""


def test_a_record_lies_in_the_hour_of_its_timestamp_in_utc(spark: "SparkSession") -> None:
    rows = [(datetime.fromisoformat(text).replace(tzinfo=UTC), text) for text in MOMENTS]
    frame = spark.createDataFrame(rows, "timestamp timestamp, text string")
    # Not the session's zone decides: half an hour off all others, and behind them.
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        found = {row.text: (row.date, row.hour) for row in with_hour(frame).collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found == MOMENTS


def test_json_values_become_structs_and_what_does_not_fit_is_kept(spark: "SparkSession") -> None:
    rows = [(number, value, 7) for number, value in enumerate(VALUES)]
    frame = spark.createDataFrame(rows, "number int, value binary, offset long")
    found = with_json_value(frame, read_schema("id BIGINT, name STRING"))
    assert found.columns == ["number", "value", "bad_value", "offset"]
    reported = {row.number: row for row in found.collect()}
    for number, (value, (struct, is_bad)) in enumerate(VALUES.items()):
        row = reported[number]
        assert (None if row.value is None else tuple(row.value)) == struct, value
        assert (None if row.bad_value is None else bytes(row.bad_value)) == (
            value if is_bad else None
        ), value


def test_a_schema_is_a_ddl_or_a_file_of_either_kind(spark: "SparkSession", tmp_path: Path) -> None:
    wanted = read_schema("id BIGINT, at STRUCT<x: INT>")
    (tmp_path / "a.ddl").write_text("id BIGINT,\nat STRUCT<x: INT>\n")
    (tmp_path / "a.json").write_text(wanted.json())
    assert read_schema(str(tmp_path / "a.ddl")) == wanted
    assert read_schema(str(tmp_path / "a.json")) == wanted


@pytest.mark.parametrize("text", ["id BIGNT", "{}", "{", "BIGINT", ""])
def test_what_is_no_schema_is_reported_in_one_sentence(spark: "SparkSession", text: str) -> None:
    with pytest.raises(ConfigError, match="is neither a DDL") as caught:
        read_schema(text)
    assert "\n" not in str(caught.value)


def test_a_function_is_found_by_module_or_by_file(tmp_path: Path) -> None:
    path = tmp_path / "my_transforms.py"
    path.write_text("def same(records):\n    return records\n")
    found: Callable[..., object] = load_function("--transform", f"{path}:same")
    assert found(7) == 7
    assert load_function("--transform", "json:dumps")([]) == "[]"


def test_functions_of_a_file_travel_to_executors_whole(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path = tmp_path / "my_udfs.py"
    path.write_text(
        "from pyspark.sql import functions as f\n"
        "def helper(text):\n    return text.upper()\n"
        "@f.udf('string', useArrow=False)\ndef loud(text):\n    return helper(text)\n"
        "def transform(records):\n    return records.select(loud('text').alias('text'))\n"
    )
    transform: Any = load_function("--transform", f"{path}:transform")
    frame = spark.createDataFrame([("a",)], "text string")
    assert [row.text for row in transform(frame).collect()] == ["A"]
