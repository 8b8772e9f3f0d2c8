"""Maintenance of Iceberg tables: the same rows, the position kept, and writers go on."""

import os
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform

from ottla.model.errors import ConfigError, RefusedError
from ottla.pipeline.export.iceberg_table import IcebergTable, open_iceberg_table, position_of
from ottla.pipeline.export.table_position import POSITION_KEY
from ottla.pipeline.maintenance.iceberg_maintenance import maintain_iceberg
from ottla.pipeline.maintenance.maintenance import MaintenanceOptions, MaintenanceResult

MERGE = MaintenanceOptions(keep_s=3_600)
OLD_S = 10_000


class Lakehouse:
    """A catalog in SQLite with one table."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.options = {
            "type": "sql",
            "uri": f"sqlite:///{path}/catalog.db",
            "warehouse": f"file://{path}/warehouse",
        }

    def open(self) -> AbstractContextManager[IcebergTable]:
        return open_iceberg_table("iceberg:local.orders", self.options)

    def table(self) -> Table:
        return load_catalog("local", **self.options).load_table("default.orders")

    def scan(self) -> pa.Table:
        return self.table().scan().to_arrow()

    def maintain(self, options: MaintenanceOptions = MERGE) -> MaintenanceResult:
        with self.open() as table:
            return maintain_iceberg(table, options)

    def files(self) -> set[str]:
        """Return the names of all data files on the disk."""
        return {one.name for one in (self.path / "warehouse").rglob("*.parquet")}

    def age(self) -> None:
        """Make all files older than any time to keep them."""
        for one in (self.path / "warehouse").rglob("*"):
            found = one.stat().st_mtime
            os.utime(one, (found - OLD_S, found - OLD_S))


@pytest.fixture
def lakehouse(tmp_path: Path) -> Lakehouse:
    return Lakehouse(tmp_path)


def test_small_files_become_one_with_the_same_rows_and_the_position(
    lakehouse: Lakehouse, append: Any, offsets_of: Any
) -> None:
    with lakehouse.open() as table:
        append(table, commits=5)
        position = table.position
    done = lakehouse.maintain()
    assert (done.merged_count, done.made_count, done.row_count) == (5, 1, 50)
    assert done.byte_count_after is not None
    assert done.byte_count_after < done.byte_count_before
    assert offsets_of(lakehouse.scan()) == list(range(50))
    assert len(list(lakehouse.table().scan().plan_files())) == 1
    snapshot = lakehouse.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    assert POSITION_KEY in snapshot.summary.additional_properties
    with lakehouse.open() as table:
        assert table.position == position
        append(table)
    assert offsets_of(lakehouse.scan()) == list(range(60))
    assert lakehouse.maintain(replace(MERGE, target_bytes=1)).merged_count == 0


def test_a_rehearsal_changes_nothing_and_counts_the_same(lakehouse: Lakehouse, append: Any) -> None:
    with lakehouse.open() as table:
        append(table, commits=3)
    before = lakehouse.table().metadata_location
    planned = lakehouse.maintain(replace(MERGE, is_rehearsal=True))
    assert lakehouse.table().metadata_location == before
    assert planned.byte_count_after is None
    done = lakehouse.maintain()
    for name in ("merged_count", "made_count", "row_count", "byte_count_before"):
        assert getattr(planned, name) == getattr(done, name)


def test_a_writer_that_commits_in_between_neither_fails_nor_loses_rows(
    lakehouse: Lakehouse, append: Any, offsets_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = SqlCatalog.commit_table
    with lakehouse.open() as writer:
        append(writer, commits=4)

        def late(*arguments: Any, **settings: Any) -> Any:
            monkeypatch.setattr(SqlCatalog, "commit_table", commit)
            append(writer)  # between the plan of the merge and its commit
            return commit(*arguments, **settings)

        monkeypatch.setattr(SqlCatalog, "commit_table", late)
        assert lakehouse.maintain().merged_count == 4
        append(writer)  # on a snapshot that it has not seen
        position = writer.position
    assert offsets_of(lakehouse.scan()) == list(range(60))
    assert position_of(lakehouse.table(), "here") == position


def test_two_maintenances_do_not_double_rows(
    lakehouse: Lakehouse, append: Any, offsets_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lakehouse.open() as table:
        append(table, commits=4)
    commit = SqlCatalog.commit_table

    def late(*arguments: Any, **settings: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        lakehouse.maintain()
        return commit(*arguments, **settings)

    monkeypatch.setattr(SqlCatalog, "commit_table", late)
    with pytest.raises(RefusedError, match="another maintenance has merged files"):
        lakehouse.maintain()
    assert offsets_of(lakehouse.scan()) == list(range(40))


def test_a_lost_response_of_the_catalog_is_no_second_merge(
    lakehouse: Lakehouse, append: Any, offsets_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lakehouse.open() as table:
        append(table, commits=4)
    commit = SqlCatalog.commit_table

    def lose(*arguments: Any, **settings: Any) -> None:
        commit(*arguments, **settings)
        raise CommitFailedException("branch main has changed")

    with monkeypatch.context() as losing:
        losing.setattr(SqlCatalog, "commit_table", lose)
        assert lakehouse.maintain().merged_count == 4
    assert offsets_of(lakehouse.scan()) == list(range(40))


def test_old_snapshots_and_the_files_that_only_they_have_are_removed(
    lakehouse: Lakehouse, append: Any, offsets_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lakehouse.open() as table:
        append(table, commits=4)
        table.open_file(table.schema, compression="zstd")  # of an export that dies
    lakehouse.maintain()
    assert len(lakehouse.files()) == 6
    later = replace(MERGE, keep_s=-3_600)
    assert lakehouse.maintain(replace(later, is_rehearsal=True)).expired_count == 4
    done = lakehouse.maintain(later)
    assert done.expired_count == 4
    assert done.removed_count > 5
    assert len(lakehouse.files()) == 1
    assert offsets_of(lakehouse.scan()) == list(range(40))
    with lakehouse.open() as table:
        assert table.position is not None
        append(table)
    assert offsets_of(lakehouse.scan()) == list(range(50))


def test_files_and_snapshots_are_kept_while_they_are_young(
    lakehouse: Lakehouse, append: Any
) -> None:
    with lakehouse.open() as table:
        append(table, commits=4)
    done = lakehouse.maintain()
    assert (done.expired_count, done.removed_count) == (0, 0)
    lakehouse.age()
    assert lakehouse.maintain().removed_count == 0  # snapshots have these files
    assert len(lakehouse.files()) == 5


def test_files_of_others_are_kept(lakehouse: Lakehouse, append: Any) -> None:
    with lakehouse.open() as table:
        append(table)
        hint = Path(table.data_location.removeprefix("file://")).parent / "metadata" / "hint.text"
    hint.write_text("1")
    lakehouse.age()
    lakehouse.maintain(replace(MERGE, keep_s=-3_600))
    assert hint.exists()


def test_a_rollback_to_a_merge_finds_its_position(
    lakehouse: Lakehouse, append: Any, offsets_of: Any
) -> None:
    with lakehouse.open() as table:
        append(table, commits=3)
        position = table.position
    lakehouse.maintain()
    lakehouse.maintain(replace(MERGE, keep_s=-3_600))
    merged = lakehouse.table().current_snapshot()
    assert merged is not None
    with lakehouse.open() as table:
        append(table)
    lakehouse.table().manage_snapshots().rollback_to_snapshot(merged.snapshot_id).commit()
    with lakehouse.open() as table:
        assert table.position == position
        append(table)
    assert offsets_of(lakehouse.scan()) == list(range(40))


def test_the_snapshot_with_the_position_is_kept_behind_others_maintenance(
    lakehouse: Lakehouse, append: Any
) -> None:
    with lakehouse.open() as table:
        append(table, commits=3)
        position = table.position
    lakehouse.table().overwrite(lakehouse.scan())  # by an engine, without a position
    done = lakehouse.maintain(replace(MERGE, keep_s=-3_600, target_bytes=1))
    assert done.expired_count == 2
    assert position_of(lakehouse.table(), "here") == position


def test_a_table_that_others_have_partitioned_is_refused(lakehouse: Lakehouse, append: Any) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        lakehouse.maintain()
    with lakehouse.open() as table:
        append(table)
    with lakehouse.table().update_spec() as change:
        change.add_field("partition", IdentityTransform(), "part")
    with pytest.raises(ConfigError, match="is partitioned, by another program"):
        lakehouse.maintain()
