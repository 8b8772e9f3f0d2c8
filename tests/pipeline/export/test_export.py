"""Exports into directories: every record once, over kills and restarts; gaps are errors."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import dataset

from ottla.model.errors import ConfigError, CorruptDataError, RefusedError
from ottla.pipeline.export import export as export_module
from ottla.pipeline.export import parquet_directory
from ottla.pipeline.export.export import ExportFigures, ExportOptions, TopicExport
from ottla.pipeline.export.parquet_directory import open_directory
from ottla.pipeline.export.parquet_file import ParquetFile
from ottla.pipeline.export.table_position import LogBounds
from ottla.pipeline.read.range_reader import read_ranges

if TYPE_CHECKING:
    from tests.pipeline.export.conftest import LogRow, TopicBench

KILLS = 20
ACTS = (
    (os, "fsync"),
    (os, "rename"),
    (os, "unlink"),
    (parquet_directory, "sync_directory"),
    (ParquetFile, "add"),
    (ParquetFile, "close"),
)
"""Functions before and after which an export is killed."""


class KillError(BaseException):
    """The end of a process: no handler of errors sees it."""


def rows_in(path: Path) -> list[tuple[int, int, bytes | None]]:
    """Return all rows of a directory, as any reader of `*.parquet` sees them."""
    if not any(path.glob("*.parquet")):
        return []
    table = dataset.dataset(path, format="parquet").to_table(["partition", "offset", "value"])
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(rows, key=lambda row: row[:2])


def run_export(path: Path, options: ExportOptions, **settings: Any) -> ExportFigures:
    """Run one export into a directory."""
    with open_directory(path) as sink:
        return TopicExport(sink, options, **settings).run()


def values_of(count: int, begin: int = 0) -> list[bytes | None]:
    """Return different values of different sizes, and some nulls."""
    return [
        None if index % 10 == 9 else b"%06d" % index + bytes(index * 7 % 90)
        for index in range(begin, begin + count)
    ]


def test_every_record_is_exported_once_and_read_by_others(
    bench: "TopicBench", tmp_path: Path
) -> None:
    topic = bench.new_topic(3)
    rows = bench.produce(topic, values_of(300), key=b"k", headers=[("h", b"1"), ("h", None)])
    options = bench.options(topic, file_bytes=4_000)
    figures = run_export(tmp_path, options)
    assert figures.committed_count == 300
    assert rows_in(tmp_path) == rows
    assert run_export(tmp_path, options).committed_count == 0
    rows += bench.produce(topic, values_of(50, 300))
    assert run_export(tmp_path, options).committed_count == 50
    assert rows_in(tmp_path) == sorted(rows, key=lambda row: row[:2])
    found = duckdb.sql(
        'SELECT count(DISTINCT (partition, "offset")), any_value(topic), any_value(key), '
        "min(headers[1].key), count(headers[2].value), max(timestamp_type) "
        f"FROM '{tmp_path}/*.parquet'"
    )
    assert found is not None
    assert found.fetchall() == [(350, topic, b"k", "h", 0, 0)]


class Killer:
    """Ends the export before or after the nth act on the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        for place, name in ACTS:
            monkeypatch.setattr(place, name, self._with_kills(getattr(place, name)))

    def _with_kills(self, act: Any) -> Any:
        def body(*arguments: Any, **settings: Any) -> Any:
            self._count()
            result = act(*arguments, **settings)
            self._count()
            return result

        return body

    def _count(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # the broker and the client share the module `os`
        self.left -= 1
        if self.left == 0:
            raise KillError


def test_a_killed_export_loses_and_doubles_nothing(
    bench: "TopicBench", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = bench.new_topic(2)
    rows = bench.produce(topic, values_of(400))
    killer = Killer(monkeypatch)
    monkeypatch.setattr("ottla.pipeline.read.arrow_decode.ROWS_MAX", 50)
    options = bench.options(topic, file_bytes=1)  # a file for each batch
    kills = 0
    for round_ in range(KILLS):
        killer.left = 1 + round_ * 3 % 17
        try:
            run_export(tmp_path, options)
        except KillError:
            kills += 1
        killer.left = 0
        found = rows_in(tmp_path)
        assert len({row[:2] for row in found}) == len(found)
        assert set(found) <= set(rows)
        if found == rows:
            rows += bench.produce(topic, values_of(100, len(rows)))
            rows.sort(key=lambda row: row[:2])
    assert kills >= KILLS // 2
    run_export(tmp_path, options)
    assert rows_in(tmp_path) == rows
    assert not list(tmp_path.glob(".part*"))


def test_a_leftover_file_is_ignored_and_deleted(bench: "TopicBench", tmp_path: Path) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, values_of(10))
    (tmp_path / ".part-0000000001.parquet.tmp").write_bytes(b"PAR1 unfinished")
    run_export(tmp_path, bench.options(topic))
    assert rows_in(tmp_path) == rows
    assert {one.name for one in tmp_path.iterdir()} == {"_ottla.lock", "part-0000000001.parquet"}


def test_files_before_the_newest_may_be_merged(bench: "TopicBench", tmp_path: Path) -> None:
    topic = bench.new_topic()
    rows: list[LogRow] = []
    for begin in range(0, 30, 10):
        rows += bench.produce(topic, values_of(10, begin))
        run_export(tmp_path, bench.options(topic))
    merged, *_ = old = sorted(tmp_path.glob("part-*.parquet"))[:-1]
    table = dataset.dataset(old, format="parquet").to_table()
    for one in old:
        one.unlink()
    pa.parquet.write_table(table, merged.with_name("merged.parquet"))
    assert run_export(tmp_path, bench.options(topic)).committed_count == 0
    assert rows_in(tmp_path) == rows


def test_records_that_retention_deleted_are_an_error_with_both_offsets(
    bench: "TopicBench", tmp_path: Path
) -> None:
    topic = bench.new_topic()
    bench.produce(topic, values_of(10))
    run_export(tmp_path, bench.options(topic))
    bench.produce(topic, values_of(10))
    bench.delete_records(topic, 0, 15)
    with pytest.raises(RefusedError, match=r"from offset 10, where the table ends, to 14.*at 15"):
        run_export(tmp_path, bench.options(topic))
    assert len(rows_in(tmp_path)) == 10


def test_records_lost_during_the_export_are_an_error_with_both_offsets(
    bench: "TopicBench", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = bench.new_topic()
    bench.produce(topic, values_of(20))
    read = read_ranges

    def late(ranges: Any, options: Any) -> Iterator[pa.RecordBatch]:
        bench.delete_records(topic, 0, 5)
        yield from read(ranges, options)

    run_export(tmp_path / "other", bench.options(topic))
    monkeypatch.setattr(export_module, "read_ranges", late)
    with pytest.raises(RefusedError, match=r"from offset 0, where the table ends, to 4.*at 5"):
        run_export(tmp_path, bench.options(topic))


def test_a_topic_that_was_created_again_is_an_error(bench: "TopicBench", tmp_path: Path) -> None:
    topic = bench.new_topic()
    bench.produce(topic, values_of(10))
    run_export(tmp_path, bench.options(topic))
    bench.ask(lambda admin: admin.delete_topic(topic))
    bench.new_topic(name=topic)
    bench.produce(topic, values_of(20))
    with pytest.raises(RefusedError, match=r"created again: the table ends at offsets \{0: 10\}"):
        run_export(tmp_path, bench.options(topic))


def test_an_older_export_that_wakes_up_adds_nothing(
    bench: "TopicBench", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, values_of(10))
    old = tmp_path / "table"
    bounds = export_module.log_bounds

    def late(*asked: Any) -> LogBounds:
        monkeypatch.setattr(export_module, "log_bounds", bounds)
        _move(old, bench, topic)
        return bounds(*asked)

    with open_directory(old) as sink:
        zombie = TopicExport(sink, bench.options(topic))
        monkeypatch.setattr(export_module, "log_bounds", late)
        with pytest.raises(RefusedError, match=r"another export has written .* at commit 1"):
            zombie.run()
    assert rows_in(old) == rows


def _move(path: Path, bench: "TopicBench", topic: str) -> None:
    """Export into a directory whose lock was removed."""
    (path / "_ottla.lock").unlink(missing_ok=True)
    run_export(path, bench.options(topic))


def test_two_exports_into_a_directory_exclude_each_other(tmp_path: Path) -> None:
    with (
        open_directory(tmp_path),
        pytest.raises(ConfigError, match="being written by another"),
        open_directory(tmp_path),
    ):
        pass


def test_a_follower_commits_when_time_is_due_and_when_it_is_asked_to_end(
    bench: "TopicBench", tmp_path: Path
) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, values_of(10))
    seen: list[ExportFigures] = []

    def show(figures: ExportFigures) -> None:
        seen.append(figures)
        if figures.committed_count == 10 and figures.row_count == 10:
            rows.extend(bench.produce(topic, values_of(10, 10)))

    def is_ending() -> bool:
        return seen[-1:] != [] and seen[-1].row_count == 20

    options = bench.options(topic, follows=True, commit_interval_s=0.01)
    figures = run_export(tmp_path, options, show=show, is_ending=is_ending)
    assert figures.committed_count == 20
    assert figures.file_count == 2
    assert rows_in(tmp_path) == rows


def test_json_values_become_columns_that_later_exports_keep(
    bench: "TopicBench", tmp_path: Path
) -> None:
    topic = bench.new_topic()
    bench.produce(topic, [b'{"id":1,"name":"a"}', b"no JSON", None])
    run_export(tmp_path, bench.options(topic, is_json=True))
    bench.produce(topic, [b'{"id":2,"more":true}', b'{"name":"b"}'])
    run_export(tmp_path, bench.options(topic, is_json=True))
    found = duckdb.sql(
        f"SELECT value.id, value.name, bad_value FROM '{tmp_path}/*.parquet' ORDER BY \"offset\""
    )
    assert found is not None
    assert found.fetchall() == [
        (1, "a", None),
        (None, None, b"no JSON"),
        (None, None, None),
        (2, None, b'{"id":2,"more":true}'),
        (None, "b", None),
    ]
    with pytest.raises(ConfigError, match="has values as JSON"):
        run_export(tmp_path, bench.options(topic))
    other = pa.struct([("id", pa.string())])
    with pytest.raises(ConfigError, match="export elsewhere"):
        run_export(tmp_path, bench.options(topic, is_json=True, value_type=other))


def test_columns_cannot_be_inferred_from_other_values(bench: "TopicBench", tmp_path: Path) -> None:
    topic = bench.new_topic()
    bench.produce(topic, [b"1", b"x"])
    with pytest.raises(ConfigError, match="none of the first 2 values"):
        run_export(tmp_path, bench.options(topic, is_json=True))
    with pytest.raises(RefusedError, match="there is no topic 'nowhere'"):
        run_export(tmp_path, bench.options("nowhere"))


def test_a_directory_of_something_else_is_refused(bench: "TopicBench", tmp_path: Path) -> None:
    topic = bench.new_topic()
    foreign = tmp_path / "other.parquet"
    pa.parquet.write_table(pa.table({"a": [1]}), foreign)
    with pytest.raises(ConfigError, match="Parquet files of something else"):
        run_export(tmp_path, bench.options(topic))
    shutil.move(foreign, tmp_path / "part-0000000001.parquet")
    with pytest.raises(ConfigError, match="has no position of an export"):
        run_export(tmp_path, bench.options(topic))
    (tmp_path / "part-0000000001.parquet").write_bytes(os.urandom(100))
    with pytest.raises(CorruptDataError, match="part-0000000001"):
        run_export(tmp_path, bench.options(topic))
