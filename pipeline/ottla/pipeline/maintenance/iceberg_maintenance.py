"""Maintains an Iceberg table while exports may write it: merges small files, expires snapshots, and
removes files that no snapshot uses.

A merge is one commit of the operation `replace`, and a compare-and-swap like an export's commit. If
a writer has committed in the meantime, the commit is repeated on the writer's snapshot, which still
contains the small files. The summary of the commit repeats the position of the export. The position
is therefore still known when the earlier snapshots have expired, and after a rollback to this
snapshot.
"""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyarrow import fs, parquet
from pyiceberg.exceptions import CommitFailedException, RESTError, ValidationException
from pyiceberg.io.pyarrow import PyArrowFileIO, parquet_file_to_data_file
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles

from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.pipeline.archive.compaction_plan import small_groups
from ottla.pipeline.archive.sink_log import SinkLogEntry
from ottla.pipeline.export.iceberg_table import (
    COMMITS_MAX,
    IcebergTable,
    position_of,
    without_retries,
)
from ottla.pipeline.export.table_position import POSITION_KEY
from ottla.pipeline.maintenance.maintenance import (
    MaintenanceOptions,
    MaintenanceResult,
    Show,
    mergeable,
    show_nothing,
    write_merged,
)

MILLISECONDS = 1_000
REMOVED = {"data": (".parquet",), "metadata": (".avro", ".metadata.json")}
"""Subdirectories of an Iceberg table's location from which unused files are removed, with the
suffixes of these files. Other files may belong to a catalog or an engine."""


class _Swap(NamedTuple):
    """Data files of an Iceberg table's current snapshot, and the locations of the files that
    replace them."""

    old: tuple[DataFile, ...]
    new: tuple[str, ...]


class _ReplaceFiles(_OverwriteFiles):
    """An Iceberg snapshot of the operation `replace`, which changes files and no rows. Readers of
    changes skip it.

    pyiceberg (0.12) has no class for this operation.
    """

    def _summary(self, snapshot_properties: Any = None) -> Summary:
        found = super()._summary(snapshot_properties or {})
        return Summary(Operation.REPLACE, **found.additional_properties)


def maintain_iceberg(
    opened: IcebergTable, options: MaintenanceOptions, show: Show = show_nothing
) -> MaintenanceResult:
    """Merge the small files of an Iceberg table, expire old snapshots, and remove unused files,
    once.

    Returns the numbers of changed files, rows and snapshots. Raises ConfigError for a table that is
    partitioned or has row deletes from another engine. Raises RefusedError if another maintenance
    has merged the same files, and ConnectionLostError if the outcome of a commit is unknown.
    """
    done = MaintenanceResult()
    work = _IcebergWork(opened, options, done)
    groups = work.groups()
    total = sum(one.file_size_in_bytes for group in groups for one in group)
    if options.is_rehearsal:
        for group in groups:
            work.count(group, made_count=1)
        done.byte_count_after = None
    for group in () if options.is_rehearsal else groups:
        swap = work.merge(group)
        if swap is not None:
            work.commit(swap)
        show(done.byte_count_before, total)
    expired = work.expire()
    work.remove_unused(expired)
    return done


class _IcebergWork:
    """The steps of one maintenance of an Iceberg table."""

    def __init__(
        self, opened: IcebergTable, options: MaintenanceOptions, done: MaintenanceResult
    ) -> None:
        self._opened = opened
        self._name = opened.name
        self._options = options
        self._done = done
        self._expire_before_ms = round((time.time() - options.keep_s) * MILLISECONDS)

    @property
    def _table(self) -> Table:
        return self._opened.present_table()

    def groups(self) -> list[list[DataFile]]:
        """Return the groups of the table's small data files. The files of each group are merged
        together."""
        table = self._table
        if not table.spec().is_unpartitioned():
            raise ConfigError(
                self._name, "is partitioned, by another program; merge its files with that"
            )
        snapshot = table.current_snapshot()
        if snapshot is None:
            return []
        found: list[tuple[int, DataFile]] = []
        for manifest in snapshot.manifests(table.io):
            if manifest.content == ManifestContent.DELETES:
                raise ConfigError(
                    self._name, "has row deletes of another engine; merge its files with that"
                )
            found += [
                (entry.sequence_number or 0, entry.data_file)
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                if entry.data_file.spec_id == table.spec().spec_id
            ]
        found.sort(key=lambda one: one[0])
        files = {one.file_path: one for _, one in found}
        entries = [SinkLogEntry(one.file_path, one.file_size_in_bytes) for one in files.values()]
        return [
            [files[entry.path] for entry in group]
            for group in small_groups(entries, self._options.target_bytes)
        ]

    def merge(self, group: Sequence[DataFile]) -> _Swap | None:
        """Write one new file for each schema that several files of a group share. Returns the old
        and the new files, or None if all files have different schemas."""
        table = self._table
        by_path = {one.file_path: one for one in group}
        opened = {path: table.io.new_input(path).open() for path in by_path}
        try:
            sources = {path: parquet.ParquetFile(file) for path, file in opened.items()}
            paths = {id(source): path for path, source in sources.items()}
            old: list[DataFile] = []
            new: list[str] = []
            for some in mergeable(list(sources.values())):
                location = f"{self._opened.data_location}/{uuid.uuid4()}.parquet"
                with table.io.new_output(location).create() as output:
                    write_merged(some, output)
                old += [by_path[paths[id(source)]] for source in some]
                new.append(location)
        finally:
            for file in opened.values():
                file.close()
        return _Swap(tuple(old), tuple(new)) if new else None

    def commit(self, swap: _Swap) -> None:
        """Replace data files of the Iceberg table in one commit. If a writer has committed in the
        meantime, repeat the commit on the writer's snapshot."""
        for _ in range(COMMITS_MAX):
            table = self._table
            made = [parquet_file_to_data_file(table.io, table.metadata, one) for one in swap.new]
            position = position_of(table, self._name)
            properties = {} if position is None else {POSITION_KEY: position.to_text()}
            try:
                with (
                    without_retries(table).transaction() as change,
                    _ReplaceFiles(
                        operation=Operation.OVERWRITE,
                        transaction=change,
                        io=table.io,
                        snapshot_properties=properties,
                    ) as replaced,
                ):
                    for one in swap.old:
                        replaced.delete_data_file(one)
                    for file in made:
                        replaced.append_data_file(file)
            except CommitFailedException:
                self._opened.reload()
                continue  # a writer has committed
            except ValidationException:
                for location in swap.new:
                    table.io.delete(location)
                raise RefusedError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"another maintenance has merged files of {self._name} meanwhile; this one "
                    "has changed nothing since, and ends",
                ) from None
            except (RESTError, OSError) as error:
                raise ConnectionLostError(
                    f"the commit to {self._name} may or may not be done ({error}); the next "
                    "maintenance goes on from there"
                ) from error
            self._opened.reload()
            self.count(swap.old, made_count=len(made))
            for file in made:
                self._done.add_size(file.file_size_in_bytes)
            return
        raise ConnectionLostError(
            f"the table {self._name} changed during each of {COMMITS_MAX} tries of a commit"
        )

    def count(self, old: Sequence[DataFile], *, made_count: int) -> None:
        """Count replaced data files, and files written in their place, in the result of the
        maintenance."""
        self._done.merged_count += len(old)
        self._done.made_count += made_count
        self._done.row_count += sum(one.record_count for one in old)
        self._done.byte_count_before += sum(one.file_size_in_bytes for one in old)

    def expire(self) -> set[int]:
        """Expire old snapshots of the Iceberg table, and return their ids. In a rehearsal, only
        return the ids."""
        for _ in range(COMMITS_MAX):
            table = self._table
            expired = expirable(table, self._expire_before_ms)
            if self._options.is_rehearsal or not expired:
                break
            try:
                change = without_retries(table).maintenance.expire_snapshots()
                change.by_ids(sorted(expired)).commit()
            except CommitFailedException:
                self._opened.reload()
                continue
            self._opened.reload()
            break
        else:
            raise ConnectionLostError(
                f"the table {self._name} changed during each of {COMMITS_MAX} tries of a commit"
            )
        self._done.expired_count = len(expired)
        return expired

    def remove_unused(self, expired: set[int]) -> None:
        """Remove old files that no remaining snapshot of the Iceberg table uses. The snapshots in
        `expired` do not count."""
        table = self._table
        io = table.io
        if not isinstance(io, PyArrowFileIO):
            return  # it can not list files
        used = {_path_of(io, one) for one in used_files(table, expired)}
        before = datetime.fromtimestamp(self._expire_before_ms / MILLISECONDS, UTC)
        for folder, suffixes in REMOVED.items():
            location = f"{table.location()}/{folder}"
            scheme, netloc, path = io.parse_location(location, io.properties)
            files = io.fs_by_scheme(scheme, netloc)
            selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
            found = [one for one in files.get_file_info(selector) if one.path.endswith(suffixes)]
            if not used.intersection(one.path for one in found):
                continue  # the table is elsewhere, so these files are not its own
            for one in found:
                is_file = one.type == fs.FileType.File
                if is_file and one.path not in used and one.mtime < before:
                    self._done.removed_count += 1
                    self._done.removed_byte_count += one.size or 0
                    if not self._options.is_rehearsal:
                        files.delete_file(one.path)


def expirable(table: Table, before_ms: int) -> set[int]:
    """Return the ids of an Iceberg table's snapshots that may be expired. These snapshots are older
    than `before_ms`, belong to no branch or tag, and are not needed to determine the export's
    position.
    """
    kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
    for snapshot in _ancestors(table):
        kept.add(snapshot.snapshot_id)
        summary = snapshot.summary
        if summary is not None and POSITION_KEY in summary.additional_properties:
            break
    else:
        kept = kept & {ref.snapshot_id for ref in table.metadata.refs.values()}
    return {
        one.snapshot_id
        for one in table.metadata.snapshots
        if one.timestamp_ms < before_ms and one.snapshot_id not in kept
    }


def used_files(table: Table, expired: set[int]) -> Iterator[str]:
    """Yield the locations of all files that an Iceberg table uses: its metadata, and the manifests
    and data files of all snapshots that have not expired."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (one.metadata_file for one in metadata.metadata_log)
    yield from (one.statistics_path for one in metadata.statistics)
    yield from (one.statistics_path for one in metadata.partition_statistics)
    seen: set[str] = set()
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id in expired:
            continue
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield from _files_of(manifest, table)


def _files_of(manifest: ManifestFile, table: Table) -> Iterable[str]:
    yield manifest.manifest_path
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
        yield entry.data_file.file_path


def _ancestors(table: Table) -> Iterator[Snapshot]:
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def _path_of(io: PyArrowFileIO, location: str) -> str:
    return str(io.parse_location(location, io.properties)[2])
