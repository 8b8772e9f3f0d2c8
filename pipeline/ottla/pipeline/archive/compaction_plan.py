"""Which small files of an archive are made into one (pure).

Invariants: a file is in at most one merge; a merge stays within a directory and within one file of
Spark's log, so that one rename makes it count; files that are large enough are never written again.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from ottla.pipeline.archive.sink_log import SinkLogEntry

TARGET_BYTES = 128 << 20
"""As large as merged files become.  Larger ones are read by fewer tasks, smaller ones cost a
request each."""
SMALL_PART = 2
"""Files below this part of the target are small.  With every file below it, one that is nearly
full would be written again for each small one that comes."""


class Merge(NamedTuple):
    """Files that become one, in the order of their rows."""

    directory: str
    entries: tuple[SinkLogEntry, ...]

    @property
    def byte_count(self) -> int:
        """Return about how large the one becomes."""
        return sum(entry.byte_count for entry in self.entries)


def merges_of(entries: Sequence[SinkLogEntry], target_bytes: int = TARGET_BYTES) -> list[Merge]:
    """Return what is to be merged of the data files that one file of the log names."""
    small = [
        entry
        for entry in entries
        if entry.path.endswith(".parquet") and entry.byte_count * SMALL_PART < target_bytes
    ]
    # A stable sort: within a directory the files keep their order in the log, which is that of
    # their batches.
    by_directory = groupby(sorted(small, key=_directory), key=_directory)
    return [
        Merge(directory, tuple(some))
        for directory, found in by_directory
        for some in _filled(list(found), target_bytes)
        if len(some) > 1
    ]


def _filled(entries: Sequence[SinkLogEntry], target_bytes: int) -> list[list[SinkLogEntry]]:
    """Return the entries, in order, in lists that are not larger than the target."""
    found: list[list[SinkLogEntry]] = []
    byte_count = 0
    for entry in entries:
        if not found or byte_count + entry.byte_count > target_bytes:
            found.append([])
            byte_count = 0
        found[-1].append(entry)
        byte_count += entry.byte_count
    return found


def replaced(
    entries: Sequence[SinkLogEntry], merged: Sequence[tuple[Merge, Sequence[SinkLogEntry]]]
) -> list[SinkLogEntry]:
    """Return the entries of a log's file with each merge's place taken by what it became."""
    gone = {entry.path for merge, _made in merged for entry in merge.entries}
    first = {merge.entries[0].path: made for merge, made in merged}
    found: list[SinkLogEntry] = []
    for entry in entries:
        found += first.get(entry.path, ())
        if entry.path not in gone:
            found.append(entry)
    return found


def _directory(entry: SinkLogEntry) -> str:
    return entry.path.rpartition("/")[0]
