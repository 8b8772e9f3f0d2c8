"""An archive's directory on this machine: its lock, the log of Spark's file sink, and its data
files.

Invariants: Only one process at a time changes the directory. The log is changed by renaming one
file. At any time, even after a crash, it therefore names either all files of a change or none. A
data file is removed only if the log is complete and does not name it, and if it was not modified
within the given time.
"""

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ottla.model.errors import ConfigError, CorruptDataError
from ottla.pipeline.archive.sink_log import (
    FOLDER,
    LogFile,
    SinkLogEntry,
    log_file,
    parse,
    read_order,
    text_of,
)

LOCK = "_ottla.lock"
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Key in the metadata of a Parquet file under which Spark stores its own schema."""
NO_DATA = ("_", ".")
"""Prefixes in names of files that contain no data. Spark and most other readers ignore such
files."""
MILLISECONDS = 1_000
LOCAL_SCHEMES = ("", "file")


def local_path(output: str) -> Path | None:
    """Return the path of an archive's output on this machine, or None if the output is remote
    (s3a://, hdfs://)."""
    parts = urlsplit(output)
    if parts.scheme == "":
        return Path(output)
    return Path(unquote(parts.path)) if parts.scheme in LOCAL_SCHEMES else None


def check_output(output: str) -> None:
    """Raise ConfigError if an archive's output on this machine is not a writable directory."""
    path = local_path(output)
    if path is None:
        return
    while not path.exists() and path != path.parent:
        path = path.parent
    if not path.is_dir():
        raise ConfigError(str(path), "is no directory")
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(output, f"can not be written: {path} does not let this user")


@contextmanager
def changing(directory: Path, *, lock: str = LOCK) -> Iterator[int]:
    """Lock an archive for changes by this process. Raises ConfigError if another process has the
    lock.

    Yields the lock's file descriptor. A process that inherits the descriptor keeps the lock until
    it ends. A JVM that writes to the archive must inherit it: if its parent is killed, the JVM may
    continue to write until its batch ends.
    """
    if directory.exists() and not directory.is_dir():
        raise ConfigError(str(directory), "is no directory")
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory / lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                str(directory), "is being written by another 'ottla'; end that first"
            ) from None
        yield handle
    finally:
        os.close(handle)


class ArchiveDirectory:
    """Directory of one archive: the log of Spark's file sink, and the data files. It may be changed
    only within `changing`."""

    def __init__(self, path: Path) -> None:
        # The log contains resolved paths.  With a symbolic link in the path, no file would seem to
        # be named.
        self.path = path.resolve()
        self._log = self.path / FOLDER

    @property
    def has_log(self) -> bool:
        """True if a streaming query has written to this directory, so that it contains a log of
        Spark's file sink."""
        return self._log.is_dir()

    def log_names(self) -> list[str]:
        """Return the names of all files in the log of Spark's file sink, including superseded
        files."""
        return [name for name in os.listdir(self._log) if log_file(name) is not None]

    def read(self, name: str) -> list[SinkLogEntry]:
        """Return the entries in one file of the log of Spark's file sink. Raises CorruptDataError
        if it is malformed."""
        return parse(name, (self._log / name).read_text())

    def files(self) -> list[tuple[LogFile, list[SinkLogEntry]]]:
        """Return the current files in the log of Spark's file sink, with their entries."""
        return [(file, self.read(file.name)) for file in read_order(self.log_names())]

    def live(self) -> list[SinkLogEntry]:
        """Return the data files of the archive that a Spark reader uses now."""
        return [entry for _file, entries in self.files() for entry in entries]

    def named(self) -> set[Path]:
        """Return the paths of the data files that the log of Spark's file sink names now. All of
        them exist within the directory.

        Raises CorruptDataError otherwise. For example, the log of a moved or copied archive names
        files in another directory, so it does not show which files are unused.
        """
        found = set()
        for entry in self.live():
            path = Path(os.path.realpath(entry.path))
            if not path.is_relative_to(self.path):
                raise CorruptDataError(
                    f"{self.path}: its log names {entry.path}; an archive can not be "
                    "moved or copied"
                )
            if not path.is_file():
                raise CorruptDataError(
                    f"{entry.path}: named by {FOLDER}, and not there; was it removed by hand?"
                )
            found.add(path)
        return found

    def replace(self, file: LogFile, entries: Sequence[SinkLogEntry]) -> None:
        """Replace the entries in one file of the log of Spark's file sink, atomically and
        durably."""
        text = text_of(entries, round(time.time() * MILLISECONDS))
        # Spark also names its own unfinished files like this, and skips them.
        draft = self._log / f".{file.name}.{uuid.uuid4()}.tmp"
        with draft.open("w") as output:
            output.write(text)
            output.flush()
            os.fsync(output.fileno())
        # Hadoop stores a checksum file beside each file.  It accepts a file without one.
        (self._log / f".{file.name}.crc").unlink(missing_ok=True)
        os.replace(draft, self._log / file.name)
        sync_directory(self._log)

    def data_files(self) -> Iterator[Path]:
        """Yield every Parquet file of the archive, whether or not the log of Spark's file sink
        names it."""
        for folder, below, names in os.walk(self.path):
            below[:] = [name for name in below if not name.startswith(NO_DATA)]
            for name in names:
                if name.endswith(".parquet") and not name.startswith(NO_DATA):
                    yield Path(folder) / name

    def spark_schema(self) -> Any:
        """Return the schema in one of the archive's current data files, in Spark's JSON notation.
        Returns None if no file contains a schema."""
        from pyarrow import parquet

        if self.has_log:
            paths = iter([Path(entry.path) for entry in reversed(self.live())])
        else:
            paths = self.data_files()
        path = next(paths, None)
        if path is None or not path.is_file():
            return None
        text = (parquet.read_metadata(path).metadata or {}).get(SPARK_SCHEMA)
        return None if text is None else json.loads(text)

    def remove_unnamed(self, keep_s: float) -> tuple[int, int]:
        """Remove data files that the log of Spark's file sink does not name. Returns their number
        and total size in bytes.

        Files that were changed within the last `keep_s` seconds are not removed, because a reader
        may still use them.
        """
        if not self.has_log:
            return 0, 0
        named = self.named()
        counts = []
        for path in self.data_files():
            found = path.stat()
            if path not in named and time.time() - found.st_mtime >= keep_s:
                path.unlink()
                counts.append(found.st_size)
        return len(counts), sum(counts)


def sync_directory(path: Path) -> None:
    """Make renames within a directory durable, by an fsync."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
