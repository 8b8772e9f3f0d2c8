"""Writes one Parquet file, row group by row group, with a text in its footer.

Memory is bounded by one row group.  The file becomes valid only by `close`: a reader refuses a file
without a footer.
"""

from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from ottla.model.limits import MIB

ROW_GROUP_BYTES = 32 * MIB
"""Bytes of rows in memory that become one row group.  Larger needs more memory, some three times as
much; smaller compresses worse, and readers skip row groups less efficiently."""
ROW_GROUP_ROWS = 250_000
_RISING = ("offset", "timestamp")
"""Columns of whole numbers whose differences are small."""
_REPEATED = ("topic", "partition", "timestamp_type", "key")
_WHOLE = frozenset(("key", "value", "bad_value", "headers"))
"""Columns without statistics."""
UNCOUNTED_SHARE = 0.5
"""Assumed compressed size of the rows in memory, to estimate the size of the file before they are
written."""


class ParquetFile:
    """An open file; `close` or `discard` ends it."""

    def __init__(self, output: Any, schema: pa.Schema, *, compression: str) -> None:
        """`output` is a file object that is open for writing, which the caller closes."""
        self._output = output
        self._schema = schema
        self._rows: list[pa.RecordBatch] = []
        self._row_bytes = 0
        self._row_count = 0
        self.row_count = 0
        """Rows that were added."""
        encodings, with_statistics, dictionaries = _columns_of(schema)
        self._writer = parquet.ParquetWriter(
            output,
            schema,
            compression=compression,
            use_dictionary=dictionaries,
            column_encoding=encodings,
            write_statistics=with_statistics,
            # Arrow's own schema would make the topic a dictionary for readers, too.
            store_schema=False,
        )

    @property
    def size_bytes(self) -> int:
        """Estimated size of the file."""
        return int(self._output.tell()) + round(self._row_bytes * UNCOUNTED_SHARE)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of the file's schema."""
        self._rows.append(rows)
        self._row_bytes += rows.nbytes
        self._row_count += rows.num_rows
        self.row_count += rows.num_rows
        if self._row_bytes >= ROW_GROUP_BYTES or self._row_count >= ROW_GROUP_ROWS:
            self._write_group()

    def close(self, key: str, text: str) -> None:
        """Write the footer, with a text under a key."""
        self._write_group()
        self._writer.add_key_value_metadata({key: text})
        self._writer.close()

    def finish(self) -> None:
        """Write the footer, without a text."""
        self._write_group()
        self._writer.close()

    def discard(self) -> None:
        """End without a usable file: the caller gives up its output."""
        self._rows = []
        with suppress(Exception):  # whatever ended the export is what the user must see
            self._writer.close()

    def _write_group(self) -> None:
        if not self._rows:
            return
        table = pa.Table.from_batches(self._rows, self._schema)
        self._rows, self._row_bytes, self._row_count = [], 0, 0
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))


def _columns_of(schema: pa.Schema) -> tuple[dict[str, str], list[str], list[str]]:
    """Return encodings by column, the columns with statistics, and those with a dictionary."""
    # Offsets rise and timestamps nearly do, so that their differences are a few bits each.
    encodings = {
        name: "DELTA_BINARY_PACKED"
        for name in _RISING
        if name in schema.names and _is_whole_number(schema.field(name).type)
    }
    with_statistics = [name for name in schema.names if name not in _WHOLE]
    dictionaries = [name for name in _REPEATED if name in schema.names]
    value = schema.field("value").type if "value" in schema.names else pa.null()
    if pa.types.is_struct(value):
        leaves = [f"value.{path}" for path in _leaves(value)]
        with_statistics += leaves
        dictionaries += leaves
    return encodings, with_statistics, dictionaries


def _is_whole_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_timestamp(type_))


def _leaves(type_: pa.StructType) -> list[str]:
    """Return the paths of the leaves of a struct, as Parquet names them."""
    found = []
    for field in type_:
        found += [field.name + suffix for suffix in _suffixes(field.type)]
    return found


def _suffixes(type_: pa.DataType) -> list[str]:
    if pa.types.is_struct(type_):
        return [f".{path}" for path in _leaves(type_)]
    if pa.types.is_list(type_):
        return [f".list.element{suffix}" for suffix in _suffixes(type_.value_type)]
    return [""]
