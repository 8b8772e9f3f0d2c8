"""Columns of an exported table: a record's fields, with its value as bytes or as typed columns.
Pure.

The columns are those of Spark's data source `format("ottla")`, with `timestamp_type` in place of
`timestampType`. With JSON values, `value` is a struct, and `bad_value` contains the bytes of each
value that does not fit.
"""

import pyarrow as pa

from ottla.pipeline.export.json_values import JsonValues
from ottla.pipeline.read.arrow_schema import HEADERS, arrow_schema

READ_COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType", HEADERS)
"""Columns that an export reads from the log. The topic is left out, because it is the same in every
row."""
TOPIC_TYPE = pa.dictionary(pa.int8(), pa.string())
"""Arrow type of the column `topic` in memory: a dictionary with one text for all rows. In files it
is a string."""
SMALLEST_BITS = 32
"""Width in bits of the smallest integers that Iceberg tables have."""


def table_schema(topic_type: pa.DataType, value_type: pa.DataType | None) -> pa.Schema:
    """Return the Arrow schema of an exported table. `value_type` is None if values are stored as
    bytes."""
    before = {one.name: one for one in arrow_schema(READ_COLUMNS)}
    fields = [before["key"]]
    if value_type is None:
        fields.append(before["value"])
    else:
        fields += [pa.field("value", value_type), pa.field("bad_value", pa.binary())]
    fields += [
        before[HEADERS],
        pa.field("topic", topic_type),
        before["partition"],
        before["offset"],
        before["timestamp"],
        pa.field("timestamp_type", pa.int32()),
    ]
    return pa.schema(fields)


def file_columns(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema that an exported table's rows have in files and catalogs. In it, a
    dictionary column of `schema` has the type of the dictionary's values."""
    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


def is_same_schema(one: pa.Schema, other: pa.Schema) -> bool:
    """Return whether two schemas have the same columns for a reader of Parquet.

    Iceberg and Delta have one type for texts of any length, and no integers below 32 bits.
    Differences that these formats cannot represent are therefore ignored.
    """
    return one.names == other.names and all(
        _reader_type(one.field(name).type) == _reader_type(other.field(name).type)
        for name in one.names
    )


def _reader_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type_):
        return _reader_type(type_.value_type)
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _reader_type(field.type)) for field in type_])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(pa.field("element", _reader_type(type_.value_type)))
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_integer(type_) and type_.bit_width < SMALLEST_BITS:
        return pa.int32()
    return type_


class TableRows:
    """Converter of decoded records of one topic into rows of the topic's table."""

    def __init__(self, topic: str, values: JsonValues | None) -> None:
        self._values = values
        self._topic = pa.array([topic], pa.string())
        value_type = None if values is None else values.type
        self.schema = table_schema(TOPIC_TYPE, value_type)
        """Arrow schema of all rows of the exported table."""
        self.bad_count = 0
        """Number of rows so far whose value does not fit the table's columns. The value is stored
        in the column `bad_value`."""

    def of(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Convert decoded records of the topic to rows of the exported table, in their order."""
        count = records.num_rows
        column = dict(zip(records.schema.names, records.columns, strict=True))
        values: list[pa.Array] = [column["value"]]
        if self._values is not None:
            parsed = self._values.parse(column["value"])
            values = list(parsed)
            self.bad_count += count - parsed.bad_value.null_count
        indices = _zeros(count)
        return pa.RecordBatch.from_arrays(
            [
                column["key"],
                *values,
                column[HEADERS],
                pa.DictionaryArray.from_arrays(indices, self._topic),
                column["partition"],
                column["offset"],
                column["timestamp"],
                column["timestampType"],
            ],
            schema=self.schema,
        )


def _zeros(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int8(), count, [None, pa.py_buffer(bytes(count))])
