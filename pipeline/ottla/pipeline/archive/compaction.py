"""Merges the many small files of an archive into few files, without loss or duplicates.

One rename adds a merged file to the log of Spark's file sink and drops the small files from it
(`archive_directory`). The small files are kept for a while, for readers that use the previous log.
After a crash, some files may not be in any log; the next compaction removes them.
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
"""Number of decoded bytes of a data file that are in memory at the same time. The row groups that
are written have the same size."""
OLD_TIMESTAMP = "INT96"
"""Parquet type of Spark's former encoding of timestamps, which Arrow cannot write back
unchanged."""


@dataclass(slots=True)
class CompactionResult:
    """Numbers and sizes of the archive files that a compaction has merged, written and removed."""

    merged_count: int = 0
    """Number of small archive files that were merged."""
    made_count: int = 0
    """Number of files that were written in place of the merged small files."""
    row_count: int = 0
    byte_count_before: int = 0
    byte_count_after: int = 0
    removed_count: int = 0
    """Number of files that were removed because the log of Spark's file sink does not name them."""
    removed_byte_count: int = 0
    waiting_batch_count: int = 0
    """Number of batches whose entries Spark has not yet merged into one file of its sink's log.
    Until then, the files of each batch are merged separately."""


def compact(path: Path, *, target_bytes: int = TARGET_BYTES, keep_s: float) -> CompactionResult:
    """Merge the small files of an archive, and return the numbers and sizes of the files and rows.
    The small files are kept for `keep_s` seconds, for readers that already use them.

    Raises ConfigError if no streaming query wrote the archive, or if another process has the lock
    of the archive.
    """
    directory = ArchiveDirectory(path)
    if not directory.has_log:
        raise ConfigError(
            str(path), f"is no archive of a streaming query: it has no {FOLDER}; nothing is done"
        )
    done = CompactionResult()
    with changing(path):
        directory.named()  # Refuses a directory whose log names files elsewhere.
        for file, entries in directory.files():
            done.waiting_batch_count += not file.is_compact
            merged = [
                (merge, made)
                for merge in merges_of(entries, target_bytes)
                if (made := _merge(merge, done))
            ]
            if merged:
                # New readers no longer use these files, but present readers may.
                _touch(entry for merge, _made in merged for entry in merge.entries)
                directory.replace(file, replaced(entries, merged))
        done.removed_count, done.removed_byte_count = directory.remove_unnamed(keep_s)
    return done


def _merge(merge: Merge, done: CompactionResult) -> list[SinkLogEntry]:
    """Write the rows of a merge's files into as few files as possible. Returns the new files'
    entries for the log of Spark's file sink.

    Files with the same schema become one file; files with different schemas are not merged. Returns
    an empty list if no two files have the same schema, or if a file has timestamps in the old
    encoding.
    """
    sources = [parquet.ParquetFile(entry.path) for entry in merge.entries]
    try:
        if any(map(_has_old_timestamps, sources)):
            return []
        alike = files_by_schema(sources)
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


def files_by_schema(sources: Iterable[Any]) -> list[list[Any]]:
    """Return the Parquet files grouped by equal schemas, each group in order."""
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
    """Write the rows of Parquet files with one schema, in order, into a new durable file. Returns
    the new file's entry for the log of Spark's file sink."""
    codec = codec_of(sources)
    path = directory / f"compacted-{uuid.uuid4()}.{codec}.parquet"
    draft = directory / f".{path.name}"
    with (
        draft.open("wb") as output,
        # Includes Spark's own metadata, from which Spark reads its types, and omits Arrow's.
        parquet.ParquetWriter(
            output, sources[0].schema_arrow, compression=codec, store_schema=False
        ) as writer,
    ):
        for table in row_groups(sources):
            writer.write_table(table, row_group_size=table.num_rows)
    with draft.open("rb") as written:
        os.fsync(written.fileno())
    os.replace(draft, path)
    return SinkLogEntry(str(path), path.stat().st_size)


def codec_of(sources: Sequence[Any]) -> str:
    """Return the compression codec of the first Parquet file that has rows."""
    for source in sources:
        if source.num_row_groups:
            name = str(source.metadata.row_group(0).column(0).compression).lower()
            return "none" if name == "uncompressed" else name
    return "none"


def row_groups(sources: Sequence[Any]) -> Iterator[Any]:
    """Yield all rows of Parquet files, in Arrow tables of about GROUP_BYTES bytes."""
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
