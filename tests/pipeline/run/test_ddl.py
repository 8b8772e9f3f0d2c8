"""Errors in a schema are found without a JVM; every schema that Spark accepts passes."""

import pytest

from ottla.pipeline.run.ddl import DEPTH_MAX, ddl_problem


@pytest.mark.parametrize(
    "text",
    [
        "id BIGINT, name STRING, at DOUBLE",
        "id: int, `a name` string",
        "a STRUCT<b: INT, c: ARRAY<MAP<STRING, DECIMAL(10, 2)>>> NOT NULL COMMENT 'x, <y', d INT",
        "struct<a:int,b:struct<>>",
        "a INTERVAL DAY TO SECOND, b VARCHAR(10) COLLATE UTF8_LCASE, c VARIANT",
        "a TIMESTAMP_NTZ DEFAULT (now(1)), b ARRAY<INT NOT NULL>",
    ],
)
def test_what_spark_takes_passes(text: str) -> None:
    assert ddl_problem(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id BIGIN", "the column id has the type BIGIN, which Spark does not know; is it BIGINT?"),
        ("id", "the column id has no type"),
        ("", "nothing stands where the name of a column is expected"),
        ("a INT,", "nothing stands where the name of a column is expected"),
        ("a INT)", "')' is not expected behind 'INT'"),
        ("a ARRAY<INT", "the column a lacks a '>' at the end"),
        ("a MAP<INT>", "the column a lacks a ',' before '>'"),
        ("a DECIMAL(10", "the column a lacks a ')'"),
        ("a STRUCT<b INT, c>", "the column c has no type"),
    ],
)
def test_a_mistake_is_named_with_its_column(text: str, why: str) -> None:
    assert ddl_problem(text) == why


def test_a_schema_nested_without_end_is_refused_before_the_stack_is_full() -> None:
    text = "a " + "ARRAY<" * 100_000
    assert ddl_problem(text) == f"the column a is nested more than {DEPTH_MAX} deep"
