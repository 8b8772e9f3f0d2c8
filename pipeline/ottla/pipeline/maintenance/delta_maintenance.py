"""Maintains a Delta table while exports may write it: merges small files, and removes unused files.
deltalake does the work.

Unused files were replaced by newer versions, or belong to no version. The position of the export
stays in the log entry of the export's own commit.
"""

import json
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable as DeltaLog
from deltalake.exceptions import CommitFailedError

from ottla.client.network.connection import ConnectionLostError
from ottla.pipeline.archive.compaction_plan import small_groups
from ottla.pipeline.archive.sink_log import SinkLogEntry
from ottla.pipeline.export.delta_table import COMMITS_MAX, DeltaTable
from ottla.pipeline.maintenance.maintenance import (
    MaintenanceOptions,
    MaintenanceResult,
    Show,
    show_nothing,
)

SECONDS_AN_HOUR = 3_600


def maintain_delta(
    opened: DeltaTable, options: MaintenanceOptions, show: Show = show_nothing
) -> MaintenanceResult:
    """Merge the small files of a Delta table, and remove files that no recent version uses. An
    export that was killed before its commit leaves such a file.

    Returns the numbers of changed files and rows. Raises ConfigError if the table does not exist,
    and ConnectionLostError if the table changed during each attempt to commit.
    """
    done = MaintenanceResult(byte_count_after=None if options.is_rehearsal else 0)
    before = _files(opened.present_log())
    if options.is_rehearsal:
        entries = [SinkLogEntry(path, size) for path, (size, _rows) in before.items()]
        for group in small_groups(entries, options.target_bytes):
            done.merged_count += len(group)
            done.made_count += 1
            done.row_count += sum(before[entry.path][1] for entry in group)
            done.byte_count_before += sum(entry.byte_count for entry in group)
    else:
        _merge(opened, options, done)
    _remove_unused(opened, options, done)
    show(done.byte_count_before, done.byte_count_before)
    return done


def _remove_unused(
    opened: DeltaTable, options: MaintenanceOptions, done: MaintenanceResult
) -> None:
    log = opened.present_log()
    # Rounded up: the unfinished file of a running export is in no version, either, and is younger
    # than `keep_s`.
    hours = ceil(options.keep_s / SECONDS_AN_HOUR)
    unused = log.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
    for path in unused:
        with suppress(FileNotFoundError):  # another maintenance has removed it
            done.removed_byte_count += Path(opened.location, path).stat().st_size
    done.removed_count = len(unused)
    if unused and not options.is_rehearsal:
        removed = log.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        done.removed_count = len(removed)


def _merge(opened: DeltaTable, options: MaintenanceOptions, done: MaintenanceResult) -> None:
    for _ in range(COMMITS_MAX):
        log = opened.present_log()
        before = _files(log)
        try:
            # An export may commit just before this commit, so this one must not contain the
            # position that was read earlier.
            figures = log.optimize.compact(target_size=options.target_bytes)
        except CommitFailedError:
            opened.reload()
            continue  # another maintenance has merged files
        opened.reload()
        after = _files(opened.present_log())
        gone = [before[path] for path in before.keys() - after.keys()]
        done.merged_count, done.made_count = figures["numFilesRemoved"], figures["numFilesAdded"]
        done.row_count = sum(rows for _size, rows in gone)
        done.byte_count_before = json.loads(figures["filesRemoved"])["totalSize"]
        done.byte_count_after = json.loads(figures["filesAdded"])["totalSize"]
        return
    raise ConnectionLostError(
        f"the table {opened.name} changed during each of {COMMITS_MAX} tries of a commit"
    )


def _files(log: DeltaLog) -> dict[str, tuple[int, int]]:
    """Return the size in bytes and the row count of each file in the Delta table's present version,
    by path."""
    found: Any = pa.table(log.get_add_actions(flatten=True))
    paths, sizes = found.column("path").to_pylist(), found.column("size_bytes").to_pylist()
    rows = found.column("num_records").to_pylist()
    return {path: (size, count) for path, size, count in zip(paths, sizes, rows, strict=True)}
