"""Makes the many small files of an archive into few, losing and doubling nothing.

A merged file counts once the log names it, by the rename that makes the small ones count no longer
(`archive_directory`).  Those stay for a while, for readers that took the log before.  A crash
leaves at worst files that no log names, which the next compaction removes.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from ottla.model.errors import ConfigError
from ottla.pipeline.archive.archive_directory import ArchiveDirectory, changing, sync_directory
from ottla.pipeline.archive.compaction_plan import TARGET_BYTES, Merge, merges_of, replaced
from ottla.pipeline.archive.sink_log import FOLDER, SinkLogEntry

GROUP_BYTES = 64 << 20
"""About how much of a file is in memory at once, decoded; the size of the row groups written."""
OLD_TIMESTAMP = "INT96"
"""Spark's former way to write timestamps, which Arrow cannot write back as it was."""


@dataclass(slots=True)
class Compacted:
    """What a compaction did."""

    merged_count: int = 0
    """Small files that were merged."""
    made_count: int = 0
    """Files they became."""
    row_count: int = 0
    byte_count_before: int = 0
    byte_count_after: int = 0
    removed_count: int = 0
    """Files that no log names any more, removed."""
    removed_byte_count: int = 0
    waiting_batch_count: int = 0
    """Batches that Spark has not folded into one file of its log; merged one by one so far."""


def compact(path: Path, *, target_bytes: int = TARGET_BYTES, keep_s: float) -> Compacted:
    """Merge the small files of an archive; `keep_s`: how long those stay for who reads them.

    ConfigError where no streaming query wrote, or one of ours still does.
    """
    directory = ArchiveDirectory(path)
    if not directory.has_log:
        raise ConfigError(
            str(path), f"is no archive of a streaming query: it has no {FOLDER}; nothing is done"
        )
    done = Compacted()
    with changing(path):
        directory.named()  # nothing is touched in a directory whose log is of another
        for file, entries in directory.files():
            done.waiting_batch_count += not file.is_compact
            merged = [
                (merge, made)
                for merge in merges_of(entries, target_bytes)
                if (made := _merge(merge, done))
            ]
            if merged:
                # From now on nobody begins to read them, but some may have begun.
                _touch(entry for merge, _made in merged for entry in merge.entries)
                directory.replace(file, replaced(entries, merged))
        done.removed_count, done.removed_byte_count = directory.remove_unnamed(keep_s)
    return done


def _merge(merge: Merge, done: Compacted) -> list[SinkLogEntry]:
    """Write the rows of a merge's files into as few as can be; return those, or nothing.

    Files of different schemas stay apart: those of one schema become one.
    """
    sources = [parquet.ParquetFile(entry.path) for entry in merge.entries]
    try:
        if any(map(_has_old_timestamps, sources)):
            return []
        alike = _by_schema(sources)
        if len(alike) == len(sources):
            return []
        made = [_write(Path(merge.directory), some) for some in alike]
        row_count = sum(source.metadata.num_rows for source in sources)
        written = sum(parquet.read_metadata(entry.path).num_rows for entry in made)
        assert written == row_count, f"{merge.directory}: {written} of {row_count} rows written"
    finally:
        for source in sources:
            source.close()
    sync_directory(Path(merge.directory))
    done.merged_count += len(sources)
    done.made_count += len(made)
    done.row_count += row_count
    done.byte_count_before += merge.byte_count
    done.byte_count_after += sum(entry.byte_count for entry in made)
    return made


def _has_old_timestamps(source: Any) -> bool:
    columns = source.metadata.schema
    return any(
        columns.column(index).physical_type == OLD_TIMESTAMP for index in range(len(columns))
    )


def _by_schema(sources: Iterable[Any]) -> list[list[Any]]:
    """Return the files in lists of the same columns and types, each in order."""
    found: list[list[Any]] = []
    for source in sources:
        schema = source.schema_arrow
        for some in found:
            if some[0].schema_arrow.equals(schema):
                some.append(source)
                break
        else:
            found.append([source])
    return found


def _write(directory: Path, sources: Sequence[Any]) -> SinkLogEntry:
    """Write the rows of files of one schema, in order, into a new one that survives the machine."""
    codec = _codec(sources)
    path = directory / f"compacted-{uuid.uuid4()}.{codec}.parquet"
    draft = directory / f".{path.name}"
    with (
        draft.open("wb") as output,
        # With Spark's own metadata, by which it knows its types; without Arrow's.
        parquet.ParquetWriter(
            output, sources[0].schema_arrow, compression=codec, store_schema=False
        ) as writer,
    ):
        for table in _row_groups(sources):
            writer.write_table(table, row_group_size=table.num_rows)
    with draft.open("rb") as written:
        os.fsync(written.fileno())
    os.replace(draft, path)
    return SinkLogEntry(str(path), path.stat().st_size)


def _codec(sources: Sequence[Any]) -> str:
    """Return the compression of the first file that has rows."""
    for source in sources:
        if source.num_row_groups:
            name = str(source.metadata.row_group(0).column(0).compression).lower()
            return "none" if name == "uncompressed" else name
    return "none"


def _row_groups(sources: Sequence[Any]) -> Iterator[Any]:
    """Yield all rows in tables of about GROUP_BYTES."""
    kept: list[Any] = []
    byte_count = 0
    for source in sources:
        for number in range(source.num_row_groups):
            table = source.read_row_group(number)
            kept.append(table)
            byte_count += table.nbytes
            if byte_count >= GROUP_BYTES:
                yield pa.concat_tables(kept)
                kept, byte_count = [], 0
    if kept:
        yield pa.concat_tables(kept)


def _touch(entries: Iterable[SinkLogEntry]) -> None:
    for entry in entries:
        os.utime(entry.path)
