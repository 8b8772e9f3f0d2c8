"""Maintains a directory of Parquet files while an export may write to it: merges small files.

The newest file contains the position of the export, and an export only adds newer files. All other
files may therefore be merged while the export runs.
"""

import os
import uuid
from contextlib import ExitStack
from pathlib import Path

from pyarrow import parquet

from ottla.model.errors import ConfigError
from ottla.pipeline.archive.archive_directory import changing, sync_directory
from ottla.pipeline.archive.compaction_plan import small_groups
from ottla.pipeline.archive.sink_log import SinkLogEntry
from ottla.pipeline.export.directory_merge import (
    DRAFT,
    MERGE_LOCK,
    complete_replacement,
    replace_files,
)
from ottla.pipeline.export.parquet_directory import check_is_no_delta_table, part_names
from ottla.pipeline.maintenance.maintenance import (
    MaintenanceOptions,
    MaintenanceResult,
    Show,
    mergeable,
    show_nothing,
    write_merged,
)


def maintain_directory(
    path: Path, options: MaintenanceOptions, show: Show = show_nothing
) -> MaintenanceResult:
    """Merge the small Parquet files of a directory once. Returns the numbers of changed files, rows
    and bytes.

    Raises ConfigError if the directory has no files of an export, if it is a Delta table, or if
    another maintenance is running.
    """
    check_is_no_delta_table(path)
    if not path.is_dir() or not part_names(path):
        raise ConfigError(str(path), "has no table of an export")
    done = MaintenanceResult(byte_count_after=None if options.is_rehearsal else 0)
    with changing(path, lock=MERGE_LOCK):
        if not options.is_rehearsal:
            complete_replacement(path)
            _remove_drafts(path, done)
        entries = [
            SinkLogEntry(name, (path / name).stat().st_size) for name in part_names(path)[:-1]
        ]
        groups = small_groups(entries, options.target_bytes)
        total = sum(entry.byte_count for group in groups for entry in group)
        for group in groups:
            _merge(path, [entry.path for entry in group], done, is_rehearsal=options.is_rehearsal)
            show(done.byte_count_before, total)
    return done


def _merge(path: Path, names: list[str], done: MaintenanceResult, *, is_rehearsal: bool) -> None:
    with ExitStack() as stack:
        sources = {name: stack.enter_context(parquet.ParquetFile(path / name)) for name in names}
        names_of = {id(source): name for name, source in sources.items()}
        merges = mergeable(list(sources.values()))
        for some in merges:
            merged = [names_of[id(source)] for source in some]
            done.merged_count += len(merged)
            done.made_count += 1
            done.row_count += sum(source.metadata.num_rows for source in some)
            done.byte_count_before += sum((path / name).stat().st_size for name in merged)
            if is_rehearsal:
                continue
            draft = f"{DRAFT}{uuid.uuid4()}.tmp"
            with (path / draft).open("wb") as output:
                write_merged(some, output)
                output.flush()
                os.fsync(output.fileno())
            sync_directory(path)
            done.add_size((path / draft).stat().st_size)
            replace_files(path, draft, merged)


def _remove_drafts(path: Path, done: MaintenanceResult) -> None:
    """Remove merged files that were never used, because the process of an earlier maintenance has
    died."""
    for name in os.listdir(path):
        if name.startswith(DRAFT):
            done.removed_count += 1
            done.removed_byte_count += (path / name).stat().st_size
            (path / name).unlink()
