"""Encodings of columns: a dictionary only for values that repeat."""

import pyarrow as pa

from ottla.pipeline.export.parquet_layout import SAMPLE_ROWS, layout_of
from ottla.pipeline.export.table_columns import table_schema

COUNT = 100


def rows_of(value: pa.Array, key: pa.Array) -> pa.Table:
    """Return rows of an export with these values and keys."""
    schema = table_schema(pa.string(), value.type)
    columns = {"value": value, "key": key, "topic": pa.array(["orders"] * len(value))}
    return pa.table(
        [columns.get(one.name, pa.nulls(len(value), one.type)) for one in schema], schema=schema
    )


def test_values_that_repeat_have_a_dictionary_and_others_do_not() -> None:
    values = [
        {"id": number, "state": "open", "tags": ["a", "b"], "at": {"x": number, "y": 1.5}}
        for number in range(COUNT)
    ]
    keys = pa.array([b"%d" % (number % 3) for number in range(COUNT)])
    type_ = pa.struct(
        [
            ("id", pa.int64()),
            ("state", pa.string()),
            ("tags", pa.list_(pa.field("element", pa.string()))),
            ("at", pa.struct([("x", pa.int64()), ("y", pa.float64())])),
        ]
    )
    layout = layout_of(rows_of(pa.array(values, type_), keys))
    assert set(layout.dictionaries) == {
        *("topic", "partition", "timestamp_type", "key"),
        *("value.state", "value.tags.list.element", "value.at.y"),
    }
    assert {"value.id", "value.at.x", "offset"} <= set(layout.with_statistics)
    assert layout.encodings == {
        "offset": "DELTA_BINARY_PACKED",
        "timestamp": "DELTA_BINARY_PACKED",
    }
    single = pa.array([b"%d" % number for number in range(COUNT)])
    assert "key" not in layout_of(rows_of(pa.array(values, type_), single)).dictionaries


def test_columns_without_values_and_other_columns_have_a_layout() -> None:
    type_ = pa.struct([("id", pa.int64())])
    empty = rows_of(pa.nulls(0, type_), pa.nulls(0, pa.binary()))
    assert "value.id" in layout_of(empty).dictionaries
    nulls = rows_of(pa.nulls(SAMPLE_ROWS + 1, type_), pa.nulls(SAMPLE_ROWS + 1, pa.binary()))
    assert "value.id" in layout_of(nulls).dictionaries
    other = layout_of(pa.table({"offset": ["a"], "twice": [1]}))
    assert (other.encodings, other.dictionaries) == ({}, [])
    assert other.with_statistics == ["offset", "twice"]
