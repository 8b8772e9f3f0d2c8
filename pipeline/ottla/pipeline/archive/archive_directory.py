"""An archive's directory on this machine: who may change it, its log, its data files.

Invariants: one process at a time changes it; the log changes by the rename of one file, so at
every moment, also after a crash, it names either all of a change or none; a data file is removed
only when the log, all of whose files are there, does not name it, and nobody has touched it for
as long as asked.
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
"""The key in a Parquet file under which Spark keeps its own types."""
NO_DATA = ("_", ".")
"""What names begin with that are no data, to Spark and to most others."""
MILLISECONDS = 1_000
LOCAL_SCHEMES = ("", "file")


def local_path(output: str) -> Path | None:
    """Return where an output is on this machine; None when it is elsewhere (s3a://, hdfs://)."""
    parts = urlsplit(output)
    if parts.scheme == "":
        return Path(output)
    return Path(unquote(parts.path)) if parts.scheme in LOCAL_SCHEMES else None


def check_output(output: str) -> None:
    """Raise ConfigError where an output on this machine can not be a directory to write to."""
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
def changing(directory: Path) -> Iterator[int]:
    """Be the one that changes an archive; ConfigError when another process is.

    Yields the lock's file descriptor: a process that inherits it holds the lock as long as it
    lives.  So must a JVM that writes here, which may outlive a killed parent by a batch's end.
    """
    if directory.exists() and not directory.is_dir():
        raise ConfigError(str(directory), "is no directory")
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                str(directory), "is being written by another 'ottla pipeline'; end that first"
            ) from None
        yield handle
    finally:
        os.close(handle)


class ArchiveDirectory:
    """The log and the data files of one archive; change it only within `changing`."""

    def __init__(self, path: Path) -> None:
        # By its real name, as the log has it: through a link each file would look unnamed.
        self.path = path.resolve()
        self._log = self.path / FOLDER

    @property
    def has_log(self) -> bool:
        """Whether a streaming query wrote here."""
        return self._log.is_dir()

    def log_names(self) -> list[str]:
        """Return the names of all files of the log, also of those that count no longer."""
        return [name for name in os.listdir(self._log) if log_file(name) is not None]

    def read(self, name: str) -> list[SinkLogEntry]:
        """Return what one file of the log names; CorruptDataError if it is none."""
        return parse(name, (self._log / name).read_text())

    def files(self) -> list[tuple[LogFile, list[SinkLogEntry]]]:
        """Return the files of the log that count now, each with what it names."""
        return [(file, self.read(file.name)) for file in read_order(self.log_names())]

    def live(self) -> list[SinkLogEntry]:
        """Return the data files as a reader of Spark sees them now."""
        return [entry for _file, entries in self.files() for entry in entries]

    def named(self) -> set[Path]:
        """Return the data files that count, all of them there and within the directory.

        CorruptDataError otherwise: an archive that was moved or copied has a log of other files,
        and by it nothing can be told from garbage.
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
        """Have a file of the log name other data files, all at once and for good."""
        text = text_of(entries, round(time.time() * MILLISECONDS))
        # Spark names its own unfinished files so, and passes over them.
        draft = self._log / f".{file.name}.{uuid.uuid4()}.tmp"
        with draft.open("w") as output:
            output.write(text)
            output.flush()
            os.fsync(output.fileno())
        # Hadoop keeps a checksum beside each file, and trusts a file that has none.
        (self._log / f".{file.name}.crc").unlink(missing_ok=True)
        os.replace(draft, self._log / file.name)
        sync_directory(self._log)

    def data_files(self) -> Iterator[Path]:
        """Yield every Parquet file of the directory, whether the log names it or not."""
        for folder, below, names in os.walk(self.path):
            below[:] = [name for name in below if not name.startswith(NO_DATA)]
            for name in names:
                if name.endswith(".parquet") and not name.startswith(NO_DATA):
                    yield Path(folder) / name

    def spark_schema(self) -> Any:
        """Return the columns of a data file that counts, as Spark's JSON; None where none tells."""
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
        """Remove data files that the log does not name; return how many, and their bytes.

        What was changed within the last `keep_s` seconds stays, for those who read it still.
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
    """Make what was renamed into a directory survive the machine."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
