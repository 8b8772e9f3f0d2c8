"""Encodings for the columns of a Parquet file, chosen by their meaning and a sample of their
values. Pure.

A dictionary saves space if values repeat. If they do not, Parquet's writer abandons the dictionary
only after it has hashed a megabyte of values in each row group. For JSON with many distinct values,
this takes a third of the time of writing.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS = 10_000
DISTINCT_SHARE_MAX = 0.5
"""Fraction of distinct values in the sample above which a Parquet column gets no dictionary."""
_RISING = ("offset", "timestamp")
"""Names of the integer columns whose successive values differ little. The column stores the
differences."""
_REPEATED = ("topic", "partition", "timestamp_type")
_WHOLE = frozenset(("key", "value", "bad_value", "headers"))
"""Names of the columns of a Parquet file for which no statistics are written."""


class ParquetLayout(NamedTuple):
    """Layout of a Parquet file: the encoding of each column, the columns with statistics, and the
    columns with a dictionary."""

    encodings: dict[str, str]
    with_statistics: list[str]
    dictionaries: list[str]


def layout_of(rows: pa.Table) -> ParquetLayout:
    """Return the layout of a Parquet file, given its first rows. `rows` may be empty."""
    schema = rows.schema
    encodings = {
        name: "DELTA_BINARY_PACKED"
        for name in _RISING
        if name in schema.names and _is_whole_number(schema.field(name).type)
    }
    with_statistics = [name for name in schema.names if name not in _WHOLE]
    dictionaries = [name for name in _REPEATED if name in schema.names]
    sample = rows.slice(0, SAMPLE_ROWS).combine_chunks()
    if "key" in schema.names and _repeats(_one_array(sample, "key")):
        dictionaries.append("key")
    if "value" in schema.names and pa.types.is_struct(schema.field("value").type):
        leaves = dict(_leaves("value", _one_array(sample, "value")))
        with_statistics += leaves
        dictionaries += [path for path, values in leaves.items() if _repeats(values)]
    return ParquetLayout(encodings, with_statistics, dictionaries)


def _one_array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the Parquet path and the values of each leaf column within a nested column."""
    if pa.types.is_struct(array.type):
        for index, field in enumerate(array.type):
            yield from _leaves(f"{path}.{field.name}", array.field(index))
    elif pa.types.is_list(array.type):
        yield from _leaves(f"{path}.list.element", array.flatten())
    else:
        yield path, array


def _repeats(values: pa.Array) -> bool:
    """Return whether a dictionary of a column's values would be much smaller than the values
    themselves."""
    count = len(values) - values.null_count
    if not count:
        return True
    distinct = pc.count_distinct(values).as_py()
    return bool(distinct <= count * DISTINCT_SHARE_MAX)


def _is_whole_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_timestamp(type_))
