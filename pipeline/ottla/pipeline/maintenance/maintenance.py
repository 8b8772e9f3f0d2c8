"""Options and result of maintaining a table, and the merge of some files into one.

Invariants for every table format: SameRows (each row is in the table once, before and after the
maintenance), PositionIsKept (an export continues at the same position), WriterGoesOn (a running
export does not fail and does not wait).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.model.limits import MIB
from ottla.pipeline.archive.compaction import codec_of, files_by_schema, row_groups
from ottla.pipeline.export.parquet_file import ParquetFile

TARGET_BYTES = 128 * MIB
"""Target size in bytes of the files that a table's maintenance writes, equal to the size of the
files that an export writes."""
KEEP_S_MIN = 3_600.0
"""Minimum age, in seconds, at which a table's maintenance removes files. The unfinished file of a
running export, which no snapshot contains yet, is younger and is therefore not removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """Options for maintaining a table once: sizes, ages, and whether it is only a rehearsal."""

    target_bytes: int = TARGET_BYTES
    """Target size of merged files, in bytes. Only files smaller than half the target are merged."""
    keep_s: float
    """Minimum age in seconds at which snapshots, and files that belong to no snapshot, are
    removed."""
    is_rehearsal: bool = False
    """True to change nothing, and only count the changes that the maintenance would make."""


@dataclass(slots=True)
class MaintenanceResult:
    """Numbers and sizes of the files and snapshots that a table's maintenance has changed."""

    merged_count: int = 0
    """Number of small files that the maintenance has merged."""
    made_count: int = 0
    """Number of files that the maintenance has written in place of the merged files."""
    row_count: int = 0
    byte_count_before: int = 0
    byte_count_after: int | None = 0
    """Total size in bytes of the files that the maintenance has written. None after a rehearsal."""
    expired_count: int = 0
    """Number of table snapshots that the maintenance has expired."""
    removed_count: int = 0
    """Number of files that the maintenance has removed because the table does not use them."""
    removed_byte_count: int = 0

    def add_size(self, byte_count: int) -> None:
        """Add the size in bytes of a written file to `byte_count_after`, the total size of written
        files."""
        self.byte_count_after = (self.byte_count_after or 0) + byte_count


Show = Callable[[int, int], None]
"""Function that shows the progress of a maintenance: the bytes merged so far, and the total bytes
to merge."""


def show_nothing(done_bytes: int, total_bytes: int) -> None:
    """Default callback for the progress of a maintenance. Does nothing."""


def mergeable(sources: Sequence[Any]) -> list[list[Any]]:
    """Return open Parquet files in groups of equal schemas. A file whose schema differs from all
    others is left out."""
    return [some for some in files_by_schema(sources) if len(some) > 1]


def write_merged(sources: Sequence[Any], output: Any) -> int:
    """Write the rows of open Parquet files with equal schemas, in order, into one Parquet file.
    Returns the number of rows."""
    # The metadata of a source contains the position of the commit that wrote the source.
    file = ParquetFile(
        output, sources[0].schema_arrow.remove_metadata(), compression=codec_of(sources)
    )
    for table in row_groups(sources):
        for batch in table.replace_schema_metadata(None).to_batches():
            file.add(batch)
    expected = sum(source.metadata.num_rows for source in sources)
    assert file.row_count == expected, f"{file.row_count} of {expected} rows written"
    file.finish()
    return file.row_count
