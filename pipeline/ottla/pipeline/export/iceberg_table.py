"""An Iceberg table in a catalog of pyiceberg. The snapshots contain the position of the export.

A commit adds one finished Parquet file, the position in the snapshot's summary, and the same
position as a table property. The nearest ancestor of the current snapshot that has a position
determines the position of the table. Snapshots of maintenance may have none, and a rollback moves
the position back with the rows. If all snapshots with a position have expired, the property is
used.

If an append conflicts, pyiceberg (0.12) would repeat it on the new state of the table without any
check. An older export that continues after a suspension would then write rows a second time.
pyiceberg's retries are therefore disabled here, in memory only. A commit is a compare-and-swap on
the snapshot whose position was read.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.update import AddSnapshotUpdate

from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ConfigError
from ottla.pipeline.export.parquet_file import ParquetFile
from ottla.pipeline.export.table_columns import file_columns, table_schema
from ottla.pipeline.export.table_position import POSITION_KEY, TablePosition
from ottla.pipeline.export.table_sink import fenced

PREFIX = "iceberg:"
NAMESPACE_DEFAULT = "default"
_NOT_WRITTEN = "statistics missing"
# An export writes no statistics of keys and values.  pyiceberg would log a warning for each of
# these columns in each file.
logging.getLogger("pyiceberg.io.pyarrow").addFilter(
    lambda record: _NOT_WRITTEN not in str(record.msg)
)
COMMITS_MAX = 10
"""Maximum number of attempts to make one commit to an Iceberg table while maintenance changes the
table at the same time."""


class IcebergTable:
    """An Iceberg table in a catalog, open for an export or maintenance; created by
    `open_iceberg_table`."""

    def __init__(self, catalog: Catalog, identifier: tuple[str, ...], name: str) -> None:
        self.name = name
        self.position: TablePosition | None = None
        self.schema: pa.Schema | None = None
        self._catalog = catalog
        self._identifier = identifier
        self._table: Table | None = None
        self._file: ParquetFile | None = None
        self._output: Any = None
        self._location = ""
        try:
            self._table = catalog.load_table(identifier)
        except NoSuchTableError:
            return
        self.position = position_of(self._table, name)
        self.schema = _plain(schema_to_pyarrow(self._table.schema()))
        if self.position is None and self._table.current_snapshot() is not None:
            raise ConfigError(name, "has rows of something else; export into another table")

    def prepare(self, schema: pa.Schema) -> None:
        """Create the Iceberg table and its namespace if they do not exist."""
        if self._table is not None:
            return
        columns = file_columns(schema)
        self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        self._table = self._catalog.create_table(self._identifier, columns)
        self.schema = columns

    def open_file(self, schema: pa.Schema, *, compression: str) -> ParquetFile:
        """Create and return a data file in the Iceberg table's location. The file belongs to no
        snapshot before it is committed."""
        self._location = f"{self.data_location}/{uuid.uuid4()}.parquet"
        self._output = self._ready().io.new_output(self._location).create()
        self._file = ParquetFile(self._output, schema, compression=compression)
        return self._file

    @property
    def data_location(self) -> str:
        """Location (URL or path) of the Iceberg table's data files."""
        return f"{self._ready().location()}/data"

    def commit(self, file: ParquetFile, position: TablePosition) -> None:
        """Finish a data file, and add it to the Iceberg table together with the export's position,
        in one commit of the catalog."""
        file.close(POSITION_KEY, position.to_text())
        self._output.close()
        self._output = self._file = None
        self.commit_files([self._location], position)

    def commit_files(self, locations: Sequence[str], position: TablePosition) -> None:
        """Add finished files, possibly none, and the export's position to the Iceberg table in one
        commit of the catalog.

        Raises RefusedError if another export has committed. Raises ConnectionLostError if the
        outcome is unknown. The next export then reads the outcome from the table.
        """
        text = position.to_text()
        for _ in range(COMMITS_MAX):
            table = self._ready()
            handle = without_retries(table)
            try:
                with handle.transaction() as change:
                    change.set_properties({POSITION_KEY: text})
                    change.add_files(
                        list(locations),
                        snapshot_properties={POSITION_KEY: text},
                        check_duplicate_files=False,
                    )
            except CommitFailedException:
                self.reload()
                found = position_of(self._ready(), self.name)
                if found != self.position:
                    number = 0 if self.position is None else self.position.commit_number
                    raise fenced(self.name, found, number) from None
                continue  # maintenance has changed the table, which has the same rows
            except (RESTError, OSError) as error:
                raise ConnectionLostError(
                    f"the commit to {self.name} may or may not be done ({error}); the next export "
                    "finds that out"
                ) from error
            self.reload()
            break
        else:
            raise ConnectionLostError(
                f"the table {self.name} changed during each of {COMMITS_MAX} tries of a commit"
            )
        self.position = position

    def close(self) -> None:
        """Close the unfinished data file, if there is one. It does not become part of any snapshot
        of the Iceberg table."""
        if self._file is not None:
            self._file.discard()
        if self._output is not None:
            self._output.close()

    def reload(self) -> None:
        """Load the present state of the Iceberg table from the catalog."""
        self._table = self._catalog.load_table(self._identifier)

    def present_table(self) -> Table:
        """Return the Iceberg table as it was last loaded. Raises ConfigError if it does not
        exist."""
        if self._table is None:
            raise ConfigError(self.name, "does not exist")
        return self._table

    def _ready(self) -> Table:
        assert self._table is not None
        return self._table


@contextmanager
def open_iceberg_table(
    target: str, options: dict[str, str], *, option: str = "--to"
) -> Iterator[IcebergTable]:
    """Open the Iceberg table `iceberg:CATALOG.NAMESPACE.TABLE` for one export, and yield it. The
    table is closed at the end of the caller's block.

    `options` complement the configuration of pyiceberg. `option` is the name of the command's
    option for the table, for error messages. Raises ConfigError for a catalog that cannot be
    opened, and for a table with data that no export has written.
    """
    name, *identifier = target.removeprefix(PREFIX).split(".")
    if not name or not identifier or not all(identifier):
        raise ConfigError(option, f"is {target!r}; it must be {PREFIX}CATALOG.TABLE")
    if len(identifier) == 1:
        identifier = [NAMESPACE_DEFAULT, *identifier]
    try:
        catalog = load_catalog(name, **options)
    except (ValueError, ImportError) as error:
        # pyiceberg names an option of its own command.
        why = str(error).replace("using --uri", "using --catalog-option uri=ADDRESS")
        raise ConfigError(option, f"the catalog {name!r} can not be opened: {why}") from None
    table = IcebergTable(catalog, tuple(identifier), target)
    try:
        yield table
    finally:
        table.close()


def position_of(table: Table, name: str) -> TablePosition | None:
    """Return the position of the export in an Iceberg table, or None if neither the snapshots nor
    the properties of the table contain one."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary
        text = None if summary is None else summary.additional_properties.get(POSITION_KEY)
        if text is not None:
            return TablePosition.from_text(text, name)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    if table.current_snapshot() is None:
        return None  # rolled back to its creation, or new
    text = table.properties.get(POSITION_KEY)
    return None if text is None else TablePosition.from_text(text, name)


class OneTryTable(Table):
    """An Iceberg table handle whose commits raise CommitFailedException at a conflict, instead of
    being repeated.

    pyiceberg deletes the metadata files of a commit that the catalog reports as failed. A catalog
    may report a successful commit as failed, if the transport repeated the request after a lost
    response. The handle therefore checks first whether the commit has taken effect.
    """

    def _do_commit(self, updates: Any, requirements: Any) -> None:
        try:
            super()._do_commit(updates, requirements)
        except CommitFailedException:
            added = [
                one.snapshot.snapshot_id for one in updates if isinstance(one, AddSnapshotUpdate)
            ]
            found = self.catalog.load_table(self.name())
            if not added or any(found.snapshot_by_id(one) is None for one in added):
                raise


def without_retries(table: Table) -> OneTryTable:
    """Return a handle of the Iceberg table whose commits fail at a conflict instead of being
    repeated."""
    properties = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    return OneTryTable(
        table.name(),
        table.metadata.model_copy(update={"properties": properties}),
        table.metadata_location,
        table.io,
        table.catalog,
        table.config,
    )


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema with which an export writes to an Iceberg table that has this Arrow schema.

    If the table has the columns of an export, the result has the types that an export writes, such
    as string instead of large string. Otherwise the schema is returned unchanged.
    """
    value = schema.field("value").type if "value" in schema.names else pa.null()
    type_ = _plain_type(value) if pa.types.is_struct(value) else None
    expected = table_schema(pa.string(), type_)
    return expected if expected.names == schema.names else schema


def _plain_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _plain_type(field.type)) for field in type_])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(pa.field("element", _plain_type(type_.value_type)))
    if pa.types.is_large_string(type_):
        return pa.string()
    return type_
