"""Writes one Parquet file, row group by row group, and optionally a text in its footer.

Memory is bounded by one row group. The file becomes valid only by `close` or `finish`, because a
reader refuses a file without a footer.
"""

from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from ottla.model.limits import MIB
from ottla.pipeline.export.parquet_layout import ParquetLayout, layout_of

ROW_GROUP_BYTES = 32 * MIB
"""Size in bytes at which the rows in memory become one row group of a Parquet file. A larger value
needs more memory, some three times the value. With a smaller value, rows are compressed less well,
and readers skip row groups less efficiently."""
ROW_GROUP_ROWS = 250_000
UNCOUNTED_SHARE = 0.5
"""Assumed ratio of compressed size to size in memory, for rows that are not written yet. Used to
estimate the size of a Parquet file."""


class ParquetFile:
    """A Parquet file that is being written. `close`, `finish` or `discard` ends it."""

    def __init__(self, output: Any, schema: pa.Schema, *, compression: str) -> None:
        """Create a Parquet file without rows. `output` is a file object that is open for writing;
        the caller closes it."""
        self._output = output
        self._schema = schema
        self._rows: list[pa.RecordBatch] = []
        self._row_bytes = 0
        self._row_count = 0
        self.row_count = 0
        """Number of rows that were added to the Parquet file."""
        self._compression = compression
        self._writer: Any = None

    @property
    def size_bytes(self) -> int:
        """Estimated size of the Parquet file in bytes."""
        return int(self._output.tell()) + round(self._row_bytes * UNCOUNTED_SHARE)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows to the Parquet file. They must have the file's schema."""
        self._rows.append(rows)
        self._row_bytes += rows.nbytes
        self._row_count += rows.num_rows
        self.row_count += rows.num_rows
        if self._row_bytes >= ROW_GROUP_BYTES or self._row_count >= ROW_GROUP_ROWS:
            self._write_group()

    def close(self, key: str, text: str) -> None:
        """Write the remaining rows and the Parquet file's footer, whose metadata contains `text`
        under `key`."""
        writer = self._written()
        writer.add_key_value_metadata({key: text})
        writer.close()

    def finish(self) -> None:
        """Write the remaining rows and the Parquet file's footer, without additional metadata."""
        self._written().close()

    def discard(self) -> None:
        """Drop the rows in memory and end the writer of the Parquet file. The caller must not use
        the output file, which is incomplete."""
        self._rows = []
        if self._writer is not None:
            with suppress(Exception):  # whatever ended the export is what the user must see
                self._writer.close()

    def _written(self) -> Any:
        """Write the rows in memory to the Parquet file as a row group, and return pyarrow's
        writer."""
        if self._rows or self._writer is None:
            self._write_group()
        return self._writer

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._rows, self._schema)
        self._rows, self._row_bytes, self._row_count = [], 0, 0
        if self._writer is None:
            self._writer = self._new_writer(layout_of(table))
        if table.num_rows:
            self._writer.write_table(table, row_group_size=table.num_rows)

    def _new_writer(self, layout: ParquetLayout) -> Any:
        return parquet.ParquetWriter(
            self._output,
            self._schema,
            compression=self._compression,
            use_dictionary=layout.dictionaries,
            column_encoding=layout.encodings,
            write_statistics=layout.with_statistics,
            # Arrow's own schema would make the topic a dictionary for readers, too.
            store_schema=False,
        )
