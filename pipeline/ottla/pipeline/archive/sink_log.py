"""The log of Spark's file sink: which files of a directory are its data.

Pure.  A streaming query names the files of each batch in `_spark_metadata/<batch>`; every so many
batches `<batch>.compact` repeats all that came before.  Spark's readers take the last compact file
and the batches after it, and nothing else in the directory.  So replacing one of those files by
a rename changes what the data is, all at once.  Source: Spark's FileStreamSinkLog, version "v1".
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
"""What Hadoop leaves as it is when it writes a path as a URI."""
BLOCK_BYTES = 32 << 20
"""What a local file system is said to have for a block; readers cut their tasks by it."""


class LogFile(NamedTuple):
    """One file of the log."""

    batch: int
    is_compact: bool

    @property
    def name(self) -> str:
        """Return its name in `_spark_metadata`."""
        return f"{self.batch}{COMPACT}" if self.is_compact else str(self.batch)


class SinkLogEntry(NamedTuple):
    """One data file that the log names."""

    path: str
    """Absolute and decoded: what `open` takes."""
    byte_count: int
    fields: tuple[tuple[str, Any], ...] = ()
    """All that the log says of it, as it says it; empty for a file that the log is to learn of."""

    def line(self, modified_ms: int = 0) -> str:
        """Return it as a line of the log."""
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
    """Return what a name in `_spark_metadata` stands for; None for what is no part of the log."""
    stem = name.removesuffix(COMPACT)
    return LogFile(int(stem), stem != name) if stem.isascii() and stem.isdecimal() else None


def read_order(names: Iterable[str]) -> list[LogFile]:
    """Return the files that make up the data now: the last compact one and all batches after it.

    CorruptDataError where a batch between them is missing: Spark could not read that either.
    """
    files = sorted({file for name in names if (file := log_file(name)) is not None})
    begin = max((file.batch for file in files if file.is_compact), default=-1)
    found = [file for file in files if file.batch > begin or file == LogFile(begin, True)]
    for before, file in pairwise(found):
        if file.batch != before.batch + 1:
            raise CorruptDataError(f"{FOLDER}: batch {before.batch + 1} is missing")
    return found


def parse(name: str, text: str) -> list[SinkLogEntry]:
    """Return what one file of the log names; CorruptDataError if it is no such file."""
    version, *lines = text.splitlines() or [""]
    if version != VERSION:
        raise CorruptDataError(f"{FOLDER}/{name}: begins with {version[:40]!r}, not {VERSION!r}")
    try:
        return [_entry(json.loads(line)) for line in lines if line]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptDataError(f"{FOLDER}/{name}: {error!r}") from None


def text_of(entries: Sequence[SinkLogEntry], modified_ms: int) -> str:
    """Return the text of a file of the log; `modified_ms` is when its new entries were written."""
    return "\n".join([VERSION, *(entry.line(modified_ms) for entry in entries)])


def _entry(fields: dict[str, Any]) -> SinkLogEntry:
    if fields["action"] != ADD:
        raise ValueError(f"an entry with the action {fields['action']!r}")
    parts = urlsplit(fields["path"])
    if parts.scheme not in ("", "file"):
        raise ValueError(f"{fields['path']} is not on this machine's disks")
    return SinkLogEntry(unquote(parts.path), int(fields["size"]), tuple(fields.items()))
