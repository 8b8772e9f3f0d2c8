"""Maintenance of directories: the same rows after every death, beside a running export."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

from ottla.model.errors import ConfigError
from ottla.pipeline.archive.archive_directory import changing
from ottla.pipeline.export import directory_merge
from ottla.pipeline.export.directory_merge import MERGE_LOCK
from ottla.pipeline.export.parquet_directory import open_directory, part_names
from ottla.pipeline.export.table_position import POSITION_KEY
from ottla.pipeline.maintenance import directory_maintenance
from ottla.pipeline.maintenance.directory_maintenance import maintain_directory
from ottla.pipeline.maintenance.maintenance import MaintenanceOptions

MERGE = MaintenanceOptions(keep_s=3_600)


class KillError(BaseException):
    """The end of a process: no handler of errors sees it."""


def scan(path: Path) -> pa.Table:
    """Return all rows, as any reader of `*.parquet` sees them."""
    files = sorted(str(one) for one in path.glob("*.parquet"))
    return dataset.dataset(files, format="parquet").to_table()


def test_small_files_but_the_newest_become_one_beside_a_running_export(
    tmp_path: Path, append: Any, offsets_of: Any
) -> None:
    with open_directory(tmp_path) as table:
        append(table, commits=5)
        done = maintain_directory(tmp_path, MERGE)
        assert (done.merged_count, done.made_count, done.row_count) == (4, 1, 40)
        assert part_names(tmp_path) == ["part-0000000001.parquet", "part-0000000005.parquet"]
        append(table, commits=2)
        position = table.position
    assert offsets_of(scan(tmp_path)) == list(range(70))
    assert POSITION_KEY.encode() not in (
        parquet.read_metadata(tmp_path / "part-0000000001.parquet").metadata or {}
    )
    with open_directory(tmp_path) as table:
        assert table.position == position


def test_a_death_at_any_act_neither_loses_nor_doubles_rows(
    tmp_path: Path, append: Any, offsets_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for act in range(100):
        path = tmp_path / str(act)
        with open_directory(path) as table:
            append(table, commits=4)
        is_dead = _dies_at(act, path, monkeypatch)
        if act % 2:
            maintain_directory(path, MERGE)
        with open_directory(path) as table:
            assert table.position is not None
            append(table)
        assert offsets_of(scan(path)) == list(range(50)), act
        if not is_dead:
            break
    assert act > 8


def _dies_at(act: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run a maintenance that dies before an act on the disk.  Returns False if it has fewer."""
    left = act

    def counted(function: Any) -> Any:
        def body(*arguments: Any, **settings: Any) -> Any:
            nonlocal left
            if left == 0:
                raise KillError
            left -= 1
            return function(*arguments, **settings)

        return body

    with monkeypatch.context() as dying:
        for place, name in (
            (os, "fsync"),
            (os, "rename"),
            (Path, "unlink"),
            (directory_merge, "sync_directory"),
            (directory_maintenance, "sync_directory"),
            (directory_maintenance, "write_merged"),
        ):
            dying.setattr(place, name, counted(getattr(place, name)))
        try:
            maintain_directory(path, MERGE)
        except KillError:
            return True
    return False


def test_a_rehearsal_changes_nothing(tmp_path: Path, append: Any) -> None:
    with open_directory(tmp_path) as table:
        append(table, commits=4)
    before = part_names(tmp_path)
    done = maintain_directory(tmp_path, MaintenanceOptions(keep_s=3_600, is_rehearsal=True))
    assert (done.merged_count, done.row_count, done.byte_count_after) == (3, 30, None)
    assert part_names(tmp_path) == before


def test_a_directory_of_something_else_and_a_second_maintenance_are_refused(
    tmp_path: Path, append: Any
) -> None:
    with pytest.raises(ConfigError, match="has no table of an export"):
        maintain_directory(tmp_path, MERGE)
    delta = tmp_path / "delta"
    (delta / "_delta_log").mkdir(parents=True)
    for refused in (
        lambda: maintain_directory(delta, MERGE),
        lambda: open_directory(delta).__enter__(),
    ):
        with pytest.raises(ConfigError, match=f"is a Delta table; name it delta:{delta}"):
            refused()
    with open_directory(tmp_path) as table:
        append(table)
    with (
        changing(tmp_path, lock=MERGE_LOCK),
        pytest.raises(ConfigError, match="being written by another"),
    ):
        maintain_directory(tmp_path, MERGE)
