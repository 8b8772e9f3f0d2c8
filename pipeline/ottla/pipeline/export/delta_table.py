"""A Delta table in a directory. The table's log contains the position of the export.

A commit adds finished Parquet files and the position, which is in the commit's own entry of the log
(`commitInfo`). The number of the commit is also the version of the application `ottla.export`,
which Delta keeps in its checkpoints. This version shows that an export has written the table, even
if the entry with the position was deleted. A missing position is then an error, not the start of a
new export. If an older version of the table is restored, the position moves back with the rows.

If an append conflicts, deltalake would repeat it on the new version of the table without a check.
An older export that continues after a suspension would then write rows a second time. deltalake's
retries are therefore disabled. A commit is a compare-and-swap on the version whose position was
read.
"""

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from deltalake import CommitProperties, Transaction
from deltalake import DeltaTable as DeltaLog
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import parquet

from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ConfigError
from ottla.pipeline.archive.archive_directory import sync_directory
from ottla.pipeline.export.parquet_directory import local_directory
from ottla.pipeline.export.parquet_file import ParquetFile
from ottla.pipeline.export.table_columns import file_columns
from ottla.pipeline.export.table_position import POSITION_KEY, TablePosition
from ottla.pipeline.export.table_sink import fenced

PREFIX = "delta:"
DATA = "data"
"""Name of the subdirectory with a Delta table's data files."""
COMMITS_MAX = 10
"""Maximum number of attempts to make one commit to a Delta table while maintenance changes the
table at the same time."""
MILLISECONDS = 1_000
RESTORE = "RESTORE"


class DeltaTable:
    """A Delta table in a directory of this machine, open for an export or maintenance; created by
    `open_delta_table`."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.position: TablePosition | None = None
        self.schema: pa.Schema | None = None
        self._path = path
        self._log: DeltaLog | None = None
        self._file: ParquetFile | None = None
        self._output: BinaryIO | None = None
        self._draft = path
        if not DeltaLog.is_deltatable(str(path)):
            if path.is_dir() and any(path.glob("*.parquet")):
                raise ConfigError(name, "has Parquet files of something else; export elsewhere")
            return
        self._log = DeltaLog(str(path))
        self.position = position_of(self._log, name)
        self.schema = pa.schema(self._log.schema().to_arrow())
        if self.position is None and self._log.file_uris():
            raise ConfigError(name, "has rows of something else; export into another table")

    @property
    def location(self) -> Path:
        """Path of the Delta table's directory."""
        return self._path

    @property
    def data_location(self) -> str:
        """Path of the directory of the Delta table's data files."""
        return str(self._path / DATA)

    def prepare(self, schema: pa.Schema) -> None:
        """Create the Delta table if it does not exist."""
        if self._log is not None:
            return
        self._path.mkdir(parents=True, exist_ok=True)
        self.schema = file_columns(schema)
        self._log = DeltaLog.create(str(self._path), self.schema)

    def open_file(self, schema: pa.Schema, *, compression: str) -> ParquetFile:
        """Create and return a data file in the Delta table's directory. The file belongs to no
        version of the table before it is committed."""
        self._draft = self._path / DATA / f"{uuid.uuid4()}.parquet"
        self._draft.parent.mkdir(exist_ok=True)
        self._output = self._draft.open("wb")
        self._file = ParquetFile(self._output, schema, compression=compression)
        return self._file

    def commit(self, file: ParquetFile, position: TablePosition) -> None:
        """Finish a data file, make it durable, and add it to the Delta table together with the
        export's position, in one commit."""
        assert self._output is not None
        file.close(POSITION_KEY, position.to_text())
        self._output.flush()
        os.fsync(self._output.fileno())
        self._output.close()
        self._output = self._file = None
        sync_directory(self._draft.parent)
        self.commit_files([str(self._draft)], position)

    def commit_files(self, locations: Sequence[str], position: TablePosition) -> None:
        """Add finished files, possibly none, and the export's position to the Delta table in one
        commit.

        Raises RefusedError if another export has committed. Raises ConnectionLostError if the
        outcome is unknown. The next export then reads the outcome from the table.
        """
        actions: list[AddAction | RemoveAction] = [self._action(Path(one)) for one in locations]
        text = position.to_text()
        for _ in range(COMMITS_MAX):
            log = self.present_log()
            try:
                log.create_write_transaction(
                    actions,
                    "append",
                    log.schema(),
                    commit_properties=CommitProperties(
                        custom_metadata={POSITION_KEY: text},
                        max_commit_retries=0,
                        app_transactions=[Transaction(POSITION_KEY, position.commit_number)],
                    ),
                )
            except CommitFailedError:
                self.reload()
                found = position_of(self.present_log(), self.name)
                if found == position:
                    break  # it has arrived, and only its acknowledgement was lost
                if found != self.position:
                    number = 0 if self.position is None else self.position.commit_number
                    raise fenced(self.name, found, number) from None
                continue  # maintenance has changed the table, which has the same rows
            except (DeltaError, OSError) as error:
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

    def reload(self) -> None:
        """Load the present version of the Delta table."""
        self._log = DeltaLog(str(self._path))

    def present_log(self) -> DeltaLog:
        """Return the log of the Delta table as it was last loaded. Raises ConfigError if the table
        does not exist."""
        if self._log is None:
            raise ConfigError(self.name, "does not exist")
        return self._log

    def close(self) -> None:
        """Close the unfinished data file, if there is one. It does not become part of any version
        of the Delta table."""
        if self._file is not None:
            self._file.discard()
        if self._output is not None:
            self._output.close()

    def _action(self, path: Path) -> AddAction:
        found = path.stat()
        stats = {"numRecords": parquet.read_metadata(path).num_rows}
        return AddAction(
            path=path.relative_to(self._path).as_posix(),
            size=found.st_size,
            partition_values={},
            modification_time=round(found.st_mtime * MILLISECONDS),
            data_change=True,
            stats=json.dumps(stats),
        )


@contextmanager
def open_delta_table(target: str, *, option: str = "--to") -> Iterator[DeltaTable]:
    """Open the Delta table `delta:DIR` for one export, and yield it. The table is closed at the end
    of the caller's block.

    `option` is the name of the command's option for the table, for error messages. Raises
    ConfigError if DIR is not a directory of this machine, or if it contains data that no export has
    written.
    """
    path = local_directory(option, target.removeprefix(PREFIX)).resolve()
    if path.exists() and not path.is_dir():
        raise ConfigError(str(path), "is no directory")
    table = DeltaTable(path, target)
    try:
        yield table
    finally:
        table.close()


def position_of(log: DeltaLog, name: str) -> TablePosition | None:
    """Return the position of the export in a Delta table, or None if the table has no rows from an
    export.

    Raises ConfigError if an export has written the table, but the log no longer contains the
    position.
    """
    if log.transaction_version(POSITION_KEY) is None:
        return None
    newest = log.version()
    for entry in log.history():
        if entry["version"] > newest:
            continue  # undone by a later restore
        if entry.get("operation") == RESTORE:
            newest = _restored_version(entry, name)
            continue
        text = entry.get(POSITION_KEY)
        if text is not None:
            return TablePosition.from_text(text, name)
        if entry["version"] == 0:
            return None  # restored to its creation
    raise ConfigError(
        name,
        "has rows of an export, and its log no longer has their position; export into another "
        "table",
    )


def _restored_version(entry: dict[str, object], name: str) -> int:
    parameters = entry.get("operationParameters")
    version = parameters.get("version") if isinstance(parameters, dict) else None
    if version is None:
        raise ConfigError(
            name, "was restored to a time; restore it to a version, or export into another table"
        )
    return int(version)
