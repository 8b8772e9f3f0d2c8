"""An archive's small files are merged, and no reader ever sees a row twice or misses one.

The archives here are written by Arrow with a log as Spark writes it; `test_archive.py` has Spark
itself read a compacted one.
"""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from ottla.model.errors import ConfigError, CorruptDataError
from ottla.pipeline.archive.archive_directory import LOCK, ArchiveDirectory, changing
from ottla.pipeline.archive.compaction import compact
from ottla.pipeline.archive.sink_log import FOLDER, LogFile, SinkLogEntry, text_of

HOUR = "topic=t/date=2026-07-31/hour=5"
OLD = time.time() - 86_400


class Archive:
    """A directory as a streaming query leaves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = ArchiveDirectory(path)
        (path / FOLDER).mkdir(parents=True)
        self.next_offset = 0

    def batch(self, file: LogFile, *hours: str, rows: int = 3, type_: pa.DataType = None) -> None:
        """Write a batch with one file in each of these hours; a compact one repeats all before."""
        entries = self.directory.live() if file.is_compact else []
        for hour in hours:
            folder = self.path / hour
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"part-{self.next_offset}.snappy.parquet"
            offsets = list(range(self.next_offset, self.next_offset + rows))
            self.next_offset += rows
            table = pa.table(
                {
                    "offset": pa.array(offsets, type_ or pa.int64()),
                    "timestamp": pa.array(offsets, pa.timestamp("us", tz="UTC")),
                    "value": pa.array([b"v"] * rows, pa.binary()),
                }
            )
            parquet.write_table(table, path, store_schema=False)
            os.utime(path, (OLD, OLD))
            entries.append(SinkLogEntry(str(path.absolute()), path.stat().st_size))
        (self.path / FOLDER / file.name).write_text(text_of(entries, 0))
        (self.path / FOLDER / f".{file.name}.crc").write_bytes(b"crc\0")

    def seen(self) -> list[int]:
        """Return the offsets that a reader of the log sees now, sorted."""
        return sorted(
            offset
            for entry in self.directory.live()
            for offset in parquet.read_table(entry.path, partitioning=None)["offset"].to_pylist()
        )

    @property
    def file_count(self) -> int:
        return len(list(self.directory.data_files()))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "a lake")


def eleven_batches(archive: Archive) -> None:
    for number in range(9):
        archive.batch(LogFile(number, False), HOUR, HOUR.replace("5", "6"))
    archive.batch(LogFile(9, True), HOUR)
    archive.batch(LogFile(10, False), HOUR, HOUR)


def test_small_files_become_one_an_hour(archive: Archive) -> None:
    eleven_batches(archive)
    before = archive.seen()
    done = compact(archive.path, keep_s=0)
    assert archive.seen() == before == list(range(archive.next_offset))
    # One for each hour of what Spark folded into one file, one for the batch after that.
    assert (done.merged_count, done.made_count, done.row_count) == (19 + 2, 3, len(before))
    assert done.removed_count == 21
    assert archive.file_count == 3


def test_rows_stay_in_order_and_keep_their_types(archive: Archive) -> None:
    archive.batch(LogFile(0, False), HOUR, HOUR, HOUR)
    (before, *_rest) = (parquet.read_schema(one.path) for one in archive.directory.live())
    compact(archive.path, keep_s=0)
    (entry,) = archive.directory.live()
    table = parquet.read_table(entry.path, partitioning=None)
    assert table["offset"].to_pylist() == list(range(9))
    assert table.schema.equals(before)
    assert entry.byte_count == Path(entry.path).stat().st_size


def test_a_second_compaction_changes_nothing(archive: Archive) -> None:
    eleven_batches(archive)
    compact(archive.path, keep_s=0)
    before = archive.directory.live()
    done = compact(archive.path, keep_s=0)
    assert (done.merged_count, done.removed_count) == (0, 0)
    assert archive.directory.live() == before


def test_merged_files_stay_for_those_who_read_them_still(archive: Archive) -> None:
    archive.batch(LogFile(0, False), HOUR, HOUR)
    reading = archive.directory.live()
    compact(archive.path, keep_s=3_600)
    for entry in reading:
        assert parquet.read_metadata(entry.path).num_rows == 3
    os.utime(reading[0].path, (OLD, OLD))
    assert compact(archive.path, keep_s=3_600).removed_count == 1
    assert archive.seen() == list(range(6))


def test_files_of_different_columns_are_not_mixed(archive: Archive) -> None:
    archive.batch(LogFile(0, False), HOUR, HOUR)
    archive.batch(LogFile(1, True), HOUR, HOUR, type_=pa.int32())
    done = compact(archive.path, keep_s=0)
    assert (done.merged_count, done.made_count) == (4, 2)
    assert archive.seen() == list(range(12))


def test_old_timestamps_are_left_as_they_are(archive: Archive) -> None:
    archive.batch(LogFile(0, False), HOUR, HOUR)
    for entry in archive.directory.live():
        table = parquet.read_table(entry.path, partitioning=None)
        parquet.write_table(table, entry.path, use_deprecated_int96_timestamps=True)
    assert compact(archive.path, keep_s=0).merged_count == 0


def test_what_the_log_does_not_name_is_removed_when_it_is_old(archive: Archive) -> None:
    archive.batch(LogFile(0, False), HOUR)
    left = archive.path / HOUR / "part-of-a-task-that-died.parquet"
    left.write_bytes(b"PAR1")
    assert compact(archive.path, keep_s=3_600).removed_count == 0
    os.utime(left, (OLD, OLD))
    assert compact(archive.path, keep_s=3_600).removed_count == 1
    assert archive.seen() == [0, 1, 2]


class CrashError(Exception):
    """The machine ends here."""


def crash_before(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Allow a number of steps that change the disk."""
    left = [steps]

    def crashing(module: Any, name: str) -> None:
        real = getattr(module, name)

        def step(*arguments: Any, **words: Any) -> Any:
            if left[0] == 0:
                raise CrashError
            left[0] -= 1
            return real(*arguments, **words)

        monkeypatch.setattr(module, name, step)

    for name in ("replace", "utime", "fsync"):
        crashing(os, name)
    crashing(Path, "unlink")


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_a_crash_at_any_step_loses_and_doubles_nothing(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    eleven_batches(archive)
    before = archive.seen()
    with monkeypatch.context() as patched:
        crash_before(patched, steps)
        with pytest.raises(CrashError):
            compact(archive.path, keep_s=0)
    assert archive.seen() == before
    compact(archive.path, keep_s=0)
    assert archive.seen() == before
    assert archive.file_count == 3


def test_an_archive_that_is_being_written_is_refused(archive: Archive) -> None:
    archive.batch(LogFile(0, False), HOUR, HOUR)
    with changing(archive.path), pytest.raises(ConfigError, match="is being written by another"):
        compact(archive.path, keep_s=0)
    assert (archive.path / LOCK).exists()
    assert compact(archive.path, keep_s=0).merged_count == 2


def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no archive of a streaming query"):
        compact(tmp_path, keep_s=0)


def test_a_file_that_is_named_and_not_there_stops_it(archive: Archive) -> None:
    archive.batch(LogFile(0, False), HOUR, HOUR)
    Path(archive.directory.live()[0].path).unlink()
    with pytest.raises(CorruptDataError, match="named by _spark_metadata, and not there"):
        compact(archive.path, keep_s=0)


def test_an_archive_behind_a_link_is_the_same_archive(archive: Archive, tmp_path: Path) -> None:
    eleven_batches(archive)
    before = archive.seen()
    (tmp_path / "link").symlink_to(archive.path)
    assert compact(tmp_path / "link", target_bytes=1, keep_s=0).removed_count == 0
    assert compact(tmp_path / "link", keep_s=0).removed_count == 21
    assert archive.seen() == before


def test_nothing_is_touched_in_an_archive_that_was_moved_or_copied(
    archive: Archive, tmp_path: Path
) -> None:
    eleven_batches(archive)
    copy = tmp_path / "copy"
    shutil.copytree(archive.path, copy)
    with pytest.raises(CorruptDataError, match="can not be moved or copied"):
        compact(copy, keep_s=0)
    archive.path.rename(tmp_path / "moved")
    with pytest.raises(CorruptDataError, match="can not be moved or copied"):
        compact(tmp_path / "moved", keep_s=0)
    count = len(list(ArchiveDirectory(copy).data_files()))
    assert count == len(list(ArchiveDirectory(tmp_path / "moved").data_files())) == 21


def test_a_checksum_does_not_outlive_what_it_is_of(archive: Archive) -> None:
    archive.batch(LogFile(0, False), HOUR, HOUR)
    compact(archive.path, keep_s=0)
    assert not (archive.path / FOLDER / ".0.crc").exists()
