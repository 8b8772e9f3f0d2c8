"""Schemas of JSON values: Spark's DDL as Arrow's types."""

import pyarrow as pa
import pytest

from ottla.model.errors import ConfigError
from ottla.pipeline.export.value_schema import value_type_of


def test_a_ddl_becomes_a_struct() -> None:
    found = value_type_of(
        "--schema",
        "id BIGINT, `the name` STRING, at TIMESTAMP, price DECIMAL(12,2), count decimal, "
        "lines ARRAY<STRUCT<sku: STRING, n: INT>>",
    )
    line = pa.struct([("sku", pa.string()), ("n", pa.int32())])
    assert found == pa.struct(
        [
            ("id", pa.int64()),
            ("the name", pa.string()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("price", pa.decimal128(12, 2)),
            ("count", pa.decimal128(10, 0)),
            ("lines", pa.list_(pa.field("element", line))),
        ]
    )
    assert value_type_of("--schema", "STRUCT<a: INT>") == pa.struct([("a", pa.int32())])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id BIGNIT", "is it BIGINT"),
        ("id", "has no type"),
        ("id MAP<STRING, INT>", "the column id has MAP"),
        ("id BINARY", "the column id has BINARY"),
        ("id INT NOT NULL", "the column id has NOT"),
        ("id INT, id STRING", "has the column id twice"),
        ("id DECIMAL(99, 1)", "the column id: "),
    ],
)
def test_a_ddl_without_a_form_in_json_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        value_type_of("--schema", text)
