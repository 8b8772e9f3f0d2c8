"""A directory of Parquet files that form one table.  The footer of the newest file contains the
position of the export.

A commit is the rename of one finished file. Rows and position therefore appear together, and a
reader of `*.parquet` sees each record once at any moment. Each footer contains the whole position,
so all files except the newest may be merged, moved or deleted. Names of unfinished files begin with
a dot. The next export deletes unfinished files.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow import parquet

from ottla.model.errors import ConfigError, CorruptDataError
from ottla.pipeline.archive.archive_directory import changing, sync_directory
from ottla.pipeline.export.directory_merge import complete_after_death
from ottla.pipeline.export.parquet_file import ParquetFile
from ottla.pipeline.export.table_position import POSITION_KEY, TablePosition
from ottla.pipeline.export.table_sink import fenced

PARQUET = ".parquet"
_NAME = re.compile(r"part-(\d{10,})\.parquet")
DELTA_LOG = "_delta_log"
"""Name of the subdirectory with a Delta table's log."""
_UNFINISHED = re.compile(r"\.part-\d+\.parquet\.tmp")


class ParquetDirectory:
    """A table of Parquet files in a directory, locked for one export; created by
    `open_directory`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position: TablePosition | None = None
        self.schema: pa.Schema | None = None
        self._output: BinaryIO | None = None
        self._file: ParquetFile | None = None
        self._draft = path
        check_is_no_delta_table(path)
        newest = _newest(path)
        if newest is not None:
            self.position = _position_of(path / newest)
            self.schema = parquet.read_schema(path / newest)
        elif any(name.endswith(PARQUET) for name in os.listdir(path)):
            raise ConfigError(
                str(path), "has Parquet files of something else; export into another directory"
            )

    @property
    def name(self) -> str:
        """Path of the directory, used as the name of the table."""
        return str(self.path)

    def prepare(self, schema: pa.Schema) -> None:
        """Delete the unfinished files of earlier exports.  `schema` is not used, because the
        directory exists already."""
        for name in os.listdir(self.path):
            if _UNFINISHED.fullmatch(name):
                os.unlink(self.path / name)

    def open_file(self, schema: pa.Schema, *, compression: str) -> ParquetFile:
        """Create and return the Parquet file of the export's next commit, under a temporary
        name."""
        self._draft = self.path / f".{_name_of(self._number + 1)}.tmp"
        self._output = self._draft.open("wb")
        self._file = ParquetFile(self._output, schema, compression=compression)
        return self._file

    def commit(self, file: ParquetFile, position: TablePosition) -> None:
        """Finish a Parquet file, make it durable, and rename it to its final name.

        Raises RefusedError if another export has committed, and ConfigError if the newest file was
        removed.
        """
        assert self._output is not None
        assert position.commit_number == self._number + 1
        file.close(POSITION_KEY, position.to_text())
        self._output.flush()
        os.fsync(self._output.fileno())
        self._output.close()
        self._output = self._file = None
        newest = _newest(self.path)
        if newest is not None and newest != _name_of(self._number):
            # The lock fails to exclude another export if the directory was replaced, or if its file
            # system has no locks.
            raise fenced(self.name, _position_of(self.path / newest), self._number)
        if newest is None and self._number:
            raise ConfigError(
                self.name, "has lost its newest file, which has the position; this export ends"
            )
        os.rename(self._draft, self.path / _name_of(position.commit_number))
        sync_directory(self.path)
        self.position = position

    def close(self) -> None:
        """Close the unfinished Parquet file, if there is one. The next export deletes it."""
        if self._file is not None:
            self._file.discard()
        if self._output is not None:
            self._output.close()

    @property
    def _number(self) -> int:
        return 0 if self.position is None else self.position.commit_number


@contextmanager
def open_directory(path: Path) -> Iterator[ParquetDirectory]:
    """Lock a directory of Parquet files for one export, and yield it. The directory is created if
    necessary.

    Raises ConfigError if another process has the lock, or if the directory contains Parquet files
    that no export has written.
    """
    with changing(path):
        complete_after_death(path)
        directory = ParquetDirectory(path.resolve())
        try:
            yield directory
        finally:
            directory.close()


def local_directory(option: str, text: str) -> Path:
    """Return the path of a local directory, given the value of an option.

    Raises ConfigError for an empty text and for a URL, whose scheme would become the name of a
    directory.
    """
    if not text or "://" in text:
        raise ConfigError(
            option,
            f"is {text!r}; it must be a directory of this machine, or iceberg:CATALOG.TABLE with a "
            "warehouse elsewhere",
        )
    return Path(text)


def check_is_no_delta_table(path: Path) -> None:
    """Raise ConfigError if a directory contains a Delta table, whose vacuum operation would delete
    other files."""
    if (path / DELTA_LOG).is_dir():
        raise ConfigError(str(path), f"is a Delta table; name it delta:{path}")


def part_names(path: Path) -> list[str]:
    """Return the names of the Parquet files that exports have written in a directory, the newest
    last."""
    numbers = [int(found[1]) for found in map(_NAME.fullmatch, os.listdir(path)) if found]
    return [_name_of(number) for number in sorted(numbers)]


def _newest(path: Path) -> str | None:
    """Return the name of the newest Parquet file that an export has written in a directory, or None
    if there is no such file."""
    return next(reversed(part_names(path)), None)


def _name_of(number: int) -> str:
    return f"part-{number:010}{PARQUET}"


def _position_of(path: Path) -> TablePosition:
    try:
        metadata = parquet.read_metadata(path).metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise CorruptDataError(f"{path}: {error}") from None
    text = metadata.get(POSITION_KEY.encode())
    if text is None:
        raise ConfigError(
            str(path), "has no position of an export; move it away, or export elsewhere"
        )
    return TablePosition.from_text(text.decode(errors="replace"), str(path))
