"""Options and result of the maintenance of a table, and the merge of some files into one.

Invariants of every form of table: SameRows (each row is in the table once before and after),
PositionIsKept (an export continues where it was), WriterGoesOn (a running export neither fails nor
waits).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.model.limits import MIB
from ottla.pipeline.archive.compaction import codec_of, files_by_schema, row_groups
from ottla.pipeline.export.parquet_file import ParquetFile

TARGET_BYTES = 128 * MIB
"""Size of merged files in bytes, that of an export's own files."""
KEEP_S_MIN = 3_600.0
"""Shortest age of files that are removed.  A file of a running export is in no snapshot yet, and
younger than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """Limits of one maintenance."""

    target_bytes: int = TARGET_BYTES
    """Size of merged files; below half of it a file is small."""
    keep_s: float
    """Age in seconds at which snapshots, and files that no snapshot has, are removed."""
    is_rehearsal: bool = False
    """True to change nothing, and to count what would be changed."""


@dataclass(slots=True)
class MaintenanceResult:
    """Numbers and sizes of what a maintenance has changed."""

    merged_count: int = 0
    """Number of small files that were merged."""
    made_count: int = 0
    """Number of files written in place of the merged ones."""
    row_count: int = 0
    byte_count_before: int = 0
    byte_count_after: int | None = 0
    """Size of the files written; None if nothing was changed."""
    expired_count: int = 0
    """Number of snapshots that were expired."""
    removed_count: int = 0
    """Number of files that were removed because the table does not use them."""
    removed_byte_count: int = 0

    def add_size(self, byte_count: int) -> None:
        """Add the size of a file that was written."""
        self.byte_count_after = (self.byte_count_after or 0) + byte_count


Show = Callable[[int, int], None]
"""Function that shows the progress: bytes that are merged, of all that will be."""


def show_nothing(done_bytes: int, total_bytes: int) -> None:
    """Show no progress."""


def mergeable(sources: Sequence[Any]) -> list[list[Any]]:
    """Return the groups of Parquet files that have one schema, of at least two files each."""
    return [some for some in files_by_schema(sources) if len(some) > 1]


def write_merged(sources: Sequence[Any], output: Any) -> int:
    """Write the rows of Parquet files with one schema, in order, into an output.  Returns the
    number of rows."""
    # The metadata of a source has the position of its own commit.
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
