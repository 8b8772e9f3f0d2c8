"""Interfaces of the tables that exports write.  Each commit stores rows and position together."""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from ottla.model.errors import ErrorCode, RefusedError
from ottla.pipeline.export.parquet_file import ParquetFile
from ottla.pipeline.export.table_position import TablePosition


class TableSink(Protocol):
    """Interface of a table that is open for one export.

    Invariant RowsAndPositionTogether: `commit` makes both visible in one atomic change, or neither.
    Invariant OneWriter: `commit` raises RefusedError if another export has committed since this
    export read the position.
    """

    @property
    def name(self) -> str:
        """Name of the table as the user wrote it."""

    @property
    def position(self) -> TablePosition | None:
        """Position of the last commit to the table: the next offset of each partition. None before
        the first commit."""

    @property
    def schema(self) -> pa.Schema | None:
        """Arrow schema of the table's rows, or None if the table has no schema yet."""

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table with the given schema if it does not exist."""

    def open_file(self, schema: pa.Schema, *, compression: str) -> ParquetFile:
        """Create and return the data file that the next commit adds to the table. Readers do not
        see the file before the commit."""

    def commit(self, file: ParquetFile, position: TablePosition) -> None:
        """Add the rows of an open data file to the table, and store the export's position, in one
        atomic change."""


class FileTable(Protocol):
    """Interface of a table to which finished Parquet files of another program are added.

    Invariants: RowsAndPositionTogether and OneWriter, as in TableSink.
    """

    @property
    def name(self) -> str:
        """Name of the table as the user wrote it."""

    @property
    def position(self) -> TablePosition | None:
        """Position of the last commit to the table: the next offset of each partition. None before
        the first commit."""

    @property
    def schema(self) -> pa.Schema | None:
        """Arrow schema of the table's rows, or None if the table does not exist yet."""

    @property
    def data_location(self) -> str:
        """Location (URL or path) below which the table's data files are."""

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table with the given schema if it does not exist."""

    def commit_files(self, locations: Sequence[str], position: TablePosition) -> None:
        """Add finished files to the table, possibly none, and store the export's position, in one
        atomic change."""


def fenced(name: str, found: TablePosition | None, expected_number: int) -> RefusedError:
    """Return the error of an export whose table was changed by another export.

    `found` is the position in the table, and `expected_number` the commit number that this export
    has read or written last.
    """
    number = 0 if found is None else found.commit_number
    return RefusedError(
        ErrorCode.FENCED_INSTANCE_ID,
        f"another export has written to {name}: it is at commit {number}, and this export was at "
        f"{expected_number}; this one has added nothing since, and ends",
    )
