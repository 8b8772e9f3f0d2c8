"""The log of Spark's file sink, which names the data files of a directory. Pure.

A streaming query names the files of each batch in `_spark_metadata/<batch>`. At intervals,
`<batch>.compact` repeats all earlier entries. Spark's readers use the last compact file and the
batches after it, and ignore everything else in the directory. Replacing one of those files by a
rename therefore changes the data atomically. Source: Spark's FileStreamSinkLog, version "v1".
"""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from ottla.model.errors import CorruptDataError

FOLDER = "_spark_metadata"
VERSION = "v1"
COMPACT = ".compact"
ADD = "add"
KEPT = "/=:@!$&'()*+,;~"
"""Characters that Hadoop does not escape when it writes a file's path as a URI."""
BLOCK_BYTES = 32 << 20
"""Block size in bytes of Hadoop's local file system. Spark's readers split the files among tasks at
blocks."""


class LogFile(NamedTuple):
    """One file in the log of Spark's file sink: the entries of a single batch, or a compact file
    with all earlier entries."""

    batch: int
    is_compact: bool

    @property
    def name(self) -> str:
        """Name of the log file in the directory `_spark_metadata`."""
        return f"{self.batch}{COMPACT}" if self.is_compact else str(self.batch)


class SinkLogEntry(NamedTuple):
    """Entry in the log of Spark's file sink that names one data file."""

    path: str
    """Absolute and unescaped path of the data file, as Python's `open` expects it."""
    byte_count: int
    fields: tuple[tuple[str, Any], ...] = ()
    """All fields of the entry, as read from the log of Spark's file sink. Empty for a new file."""

    def line(self, modified_ms: int = 0) -> str:
        """Return this entry as a line of the log of Spark's file sink. `modified_ms` is the file's
        modification time in ms since 1970."""
        fields = dict(self.fields) or {
            "path": "file://" + quote(self.path, safe=KEPT),
            "size": self.byte_count,
            "isDir": False,
            "modificationTime": modified_ms,
            "blockReplication": 1,
            "blockSize": BLOCK_BYTES,
            "action": ADD,
        }
        return json.dumps(fields, separators=(",", ":"))


def log_file(name: str) -> LogFile | None:
    """Return the log file with a given name in `_spark_metadata`. Returns None if this is not the
    name of a file in the log of Spark's file sink."""
    stem = name.removesuffix(COMPACT)
    return LogFile(int(stem), stem != name) if stem.isascii() and stem.isdecimal() else None


def read_order(names: Iterable[str]) -> list[LogFile]:
    """Return the files in the log of Spark's file sink that define the present data: the last
    compact file and all batches after it.

    Raises CorruptDataError if a batch between them is missing, because Spark could not read the
    log.
    """
    files = sorted({file for name in names if (file := log_file(name)) is not None})
    begin = max((file.batch for file in files if file.is_compact), default=-1)
    found = [file for file in files if file.batch > begin or file == LogFile(begin, True)]
    for before, file in pairwise(found):
        if file.batch != before.batch + 1:
            raise CorruptDataError(f"{FOLDER}: batch {before.batch + 1} is missing")
    return found


def parse(name: str, text: str) -> list[SinkLogEntry]:
    """Return the entries in `text`, the content of one file in the log of Spark's file sink. Raises
    CorruptDataError if the content is malformed."""
    version, *lines = text.splitlines() or [""]
    if version != VERSION:
        raise CorruptDataError(f"{FOLDER}/{name}: begins with {version[:40]!r}, not {VERSION!r}")
    try:
        return [_entry(json.loads(line)) for line in lines if line]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptDataError(f"{FOLDER}/{name}: {error!r}") from None


def text_of(entries: Sequence[SinkLogEntry], modified_ms: int) -> str:
    """Return the content of a file in the log of Spark's file sink. `modified_ms` is the
    modification time, in ms since 1970, of the data files in new entries."""
    return "\n".join([VERSION, *(entry.line(modified_ms) for entry in entries)])


def _entry(fields: dict[str, Any]) -> SinkLogEntry:
    if fields["action"] != ADD:
        raise ValueError(f"an entry with the action {fields['action']!r}")
    parts = urlsplit(fields["path"])
    if parts.scheme not in ("", "file"):
        raise ValueError(f"{fields['path']} is not on this machine's disks")
    return SinkLogEntry(unquote(parts.path), int(fields["size"]), tuple(fields.items()))
