"""Maintenance of Delta tables: the same rows, the position kept, and writers go on."""

import os
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.table import TableOptimizer
from pyarrow import parquet

from ottla.pipeline.export.delta_table import DeltaTable, open_delta_table, position_of
from ottla.pipeline.maintenance.delta_maintenance import maintain_delta
from ottla.pipeline.maintenance.maintenance import MaintenanceOptions, MaintenanceResult
from tests.pipeline.maintenance.conftest import SCHEMA, rows_of

HOUR_S = 3_600
MERGE = MaintenanceOptions(keep_s=HOUR_S)


class DeltaLake:
    """One Delta table."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> AbstractContextManager[DeltaTable]:
        return open_delta_table(f"delta:{self._path}")

    def log(self) -> Any:
        return deltalake.DeltaTable(str(self._path))

    def scan(self) -> pa.Table:
        return pa.concat_tables(parquet.read_table(one) for one in self.log().file_uris())

    def maintain(self, options: MaintenanceOptions = MERGE) -> MaintenanceResult:
        with self.open() as table:
            return maintain_delta(table, options)


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path / "orders")


def test_small_files_become_one_with_the_same_rows_and_the_position(
    lake: DeltaLake, append: Any, offsets_of: Any
) -> None:
    with lake.open() as table:
        append(table, commits=5)
        position = table.position
    planned = lake.maintain(replace(MERGE, is_rehearsal=True))
    assert (planned.merged_count, planned.made_count, planned.row_count) == (5, 1, 50)
    assert len(lake.log().file_uris()) == 5
    done = lake.maintain()
    assert (done.merged_count, done.made_count, done.row_count) == (5, 1, 50)
    assert offsets_of(lake.scan()) == list(range(50))
    assert position_of(lake.log(), "here") == position
    assert lake.maintain().merged_count == 0
    with lake.open() as table:
        append(table)
    assert offsets_of(lake.scan()) == list(range(60))
    assert lake.maintain(replace(MERGE, keep_s=0)).removed_count >= 5
    assert offsets_of(lake.scan()) == list(range(60))


def test_files_of_a_killed_export_are_removed_once_they_are_old(
    lake: DeltaLake, append: Any, offsets_of: Any
) -> None:
    with lake.open() as table:
        append(table, commits=2)
        data = Path(table.data_location)
        dead = table.open_file(SCHEMA, compression="zstd")  # as at a kill before the commit
        dead.add(rows_of(20, 30))
        dead.finish()
    is_dead = {one.name for one in data.iterdir()} - {
        Path(uri).name for uri in lake.log().file_uris()
    }
    assert len(is_dead) == 1
    path = data / is_dead.pop()
    lake.log().create_checkpoint()  # a vacuum that is not full ignores files before a checkpoint
    assert lake.maintain().removed_count == 0, "it may belong to a running export"
    for one in data.iterdir():
        os.utime(one, (one.stat().st_atime, one.stat().st_mtime - 2 * HOUR_S))
    size_bytes = path.stat().st_size
    planned = lake.maintain(replace(MERGE, is_rehearsal=True))
    assert (planned.removed_count, planned.removed_byte_count) == (1, size_bytes)
    assert path.exists()
    done = lake.maintain()
    assert (done.removed_count, done.removed_byte_count) == (1, size_bytes)
    assert not path.exists()
    # The files merged just now are old, too, but versions of the last hour contain them.
    assert len(list(data.iterdir())) == 2
    assert offsets_of(lake.scan()) == list(range(20))
    with lake.open() as table:
        append(table)
    assert offsets_of(lake.scan()) == list(range(30))


def test_an_unfinished_file_younger_than_the_age_to_keep_is_not_removed(
    lake: DeltaLake, append: Any
) -> None:
    with lake.open() as table:
        append(table)
        dead = Path(table.data_location) / "dead.parquet"
        dead.write_bytes(b"unfinished")
        os.utime(dead, (0, dead.stat().st_mtime - 1.2 * HOUR_S))
        lake.maintain(replace(MERGE, keep_s=1.4 * HOUR_S))
    assert dead.exists()


def test_a_writer_that_commits_in_between_neither_fails_nor_loses_rows(
    lake: DeltaLake, append: Any, offsets_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact = TableOptimizer.compact
    with lake.open() as writer:
        append(writer, commits=4)

        def late(*arguments: Any, **settings: Any) -> Any:
            monkeypatch.setattr(TableOptimizer, "compact", compact)
            append(writer)  # between the plan of the merge and its commit
            return compact(*arguments, **settings)

        monkeypatch.setattr(TableOptimizer, "compact", late)
        assert lake.maintain().made_count == 1
        assert position_of(lake.log(), "here") == writer.position
        append(writer)  # on a version that it has not seen
        position = writer.position
    assert offsets_of(lake.scan()) == list(range(60))
    assert position_of(lake.log(), "here") == position
