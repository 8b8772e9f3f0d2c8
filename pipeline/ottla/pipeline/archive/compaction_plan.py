"""Selects the small files of an archive to merge.  Pure.

Invariants: A file is in at most one merge.  All files of a merge are in one directory and in one
file of the log of Spark's file sink, so that one rename activates the merge.  Files that are large
enough are never rewritten.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from ottla.pipeline.archive.sink_log import SinkLogEntry

TARGET_BYTES = 128 << 20
"""Target size in bytes of the files that a compaction writes. With a larger value, fewer tasks read
in parallel. With a smaller value, readers send more requests, one for each file."""
SMALL_PART = 2
"""Divisor of a compaction's target size: files smaller than the quotient count as small and are
merged. With 1, a nearly full file would be rewritten for each new small file."""


FILES_MAX = 200
"""Maximum number of archive files in one merge, all of which are open at the same time. A larger
value may exceed the usual limit of 1,024 open files. With a smaller value, many tiny files need
more runs to become one."""


class Merge(NamedTuple):
    """Archive files to be merged into one, in the order of their rows."""

    directory: str
    entries: tuple[SinkLogEntry, ...]

    @property
    def byte_count(self) -> int:
        """Approximate size in bytes of the file that the merge writes."""
        return sum(entry.byte_count for entry in self.entries)


def merges_of(entries: Sequence[SinkLogEntry], target_bytes: int = TARGET_BYTES) -> list[Merge]:
    """Return the planned merges of the data files that one file in the log of Spark's file sink
    lists. Each merged file has about `target_bytes` bytes."""
    # The sort is stable, so the files of a directory stay in the order of the log, which is that of
    # their batches.
    by_directory = groupby(sorted(entries, key=_directory), key=_directory)
    return [
        Merge(directory, tuple(some))
        for directory, found in by_directory
        for some in small_groups(list(found), target_bytes)
    ]


def small_groups(
    entries: Sequence[SinkLogEntry], target_bytes: int = TARGET_BYTES
) -> list[list[SinkLogEntry]]:
    """Return groups of small data files. The files of each group can be merged, in order, into one
    file of about `target_bytes` bytes."""
    small = [
        entry
        for entry in entries
        if entry.path.endswith(".parquet") and entry.byte_count * SMALL_PART < target_bytes
    ]
    return [some for some in _filled(small, target_bytes) if len(some) > 1]


def _filled(entries: Sequence[SinkLogEntry], target_bytes: int) -> list[list[SinkLogEntry]]:
    """Return the sink log's entries, in order, in groups of files to merge. No group is larger than
    `target_bytes` bytes or has more than `FILES_MAX` files."""
    found: list[list[SinkLogEntry]] = []
    byte_count = 0
    for entry in entries:
        is_full = not found or len(found[-1]) == FILES_MAX
        if is_full or byte_count + entry.byte_count > target_bytes:
            found.append([])
            byte_count = 0
        found[-1].append(entry)
        byte_count += entry.byte_count
    return found


def replaced(
    entries: Sequence[SinkLogEntry], merged: Sequence[tuple[Merge, Sequence[SinkLogEntry]]]
) -> list[SinkLogEntry]:
    """Return the entries of one file in the log of Spark's file sink. The merged files replace the
    files of each merge."""
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
