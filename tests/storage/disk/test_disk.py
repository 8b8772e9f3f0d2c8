"""The real disk keeps the seam's promises."""

import errno
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from ottla.model.log_events import event_of
from ottla.storage.disk.disk_seam import NotCachedError
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.disk.slice import CACHED_FOR_MS, FileSlice
from ottla.storage.disk.write_back_driver import begin_write_back
from tests.jepsen.world.disk_conformance import CHECKS, Check

PATIENCE_S = 60


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_real_disk_conforms(check: Check, tmp_path: Path) -> None:
    await check(RealDisk([str(tmp_path)]), str(tmp_path))


async def test_fsyncs_that_overlap_share_one_but_not_one_that_had_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    count = 0

    def fdatasync(fd: int) -> None:
        nonlocal count
        count += 1

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(disk.fsync, file)

    assert count == 2  # one that the first began, and one for all who came while it ran
    await disk.fsync(file)
    assert count == 3
    file.close()


async def test_a_slow_flush_is_logged_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    monkeypatch.setattr("ottla.storage.disk.real_disk_driver.SLOW_FSYNC_S", 0.0)
    await disk.fsync(file)
    await disk.fsync(file)
    assert [event_of(line) for line in caplog.records] == ["disk.slow"]
    file.close()


async def test_what_is_made_durable_in_several_directories_is_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system commits once for all waiting fsyncs; the directory's worker is free during
    it."""
    disk = RealDisk([str(tmp_path)])
    for name in ("a", "b"):
        await disk.makedirs(str(tmp_path / name))
    both_wait = threading.Barrier(3)
    fsync = os.fsync

    def fsync_of_both(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            both_wait.wait(PATIENCE_S)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", fsync_of_both)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.fsync_directory, str(tmp_path / "a"))
        nursery.start_soon(disk.write_atomically, str(tmp_path / "b" / "f"), b"new")
        while not (tmp_path / "b" / "f").exists():
            await trio.lowlevel.checkpoint()
        assert await disk.read_file(str(tmp_path / "b" / "f")) == b"new"
        await trio.to_thread.run_sync(both_wait.wait, PATIENCE_S)


async def test_a_failed_fsync_fails_ever_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)

    def failing(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", failing)
        with pytest.raises(OSError, match="Input/output error"):
            await disk.fsync(file)
    with pytest.raises(OSError, match="Input/output error"):
        await disk.fsync(file)
    file.close()


async def test_what_could_not_be_written_back_fails_every_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports the error to a descriptor once: no later fsync would see it."""
    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(0, [b"lost"])

    def failing(fd: int, path: str) -> None:
        raise OSError(errno.EIO, "the disk fails as asked", path)

    with monkeypatch.context() as patched:
        patched.setattr("ottla.storage.disk.real_disk_driver.begin_write_back", failing)
        with pytest.raises(OSError, match="as asked"):
            await disk.write_back(file)
    with pytest.raises(OSError, match="as asked"):
        await disk.fsync(file)
    file.close()


def test_what_has_no_file_is_not_written_back() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        begin_write_back(-1, "nowhere")


async def test_a_closed_file_stays_open_as_long_as_a_slice_lives(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(0, [b"0123456789"])
    first, second = FileSlice(file, 2, 3), FileSlice(file, 0, 1)

    file.close()
    del second

    assert first.read() == b"234"
    assert os.pread(first.fileno(), 1, 9) == b"9"
    del first
    assert file.fileno() == -1


def test_a_slice_knows_for_a_while_how_far_it_is_in_memory(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    piece = FileSlice(file, 100, 900)
    assert piece.cached_bytes(100, 0) == 0
    piece.note_cached(500, 7_000)
    assert piece.cached_bytes(100, 7_000) == 400
    assert piece.cached_bytes(499, 7_000 + CACHED_FOR_MS) == 1
    assert piece.cached_bytes(500, 7_000) == piece.cached_bytes(600, 7_000) == 0
    assert piece.cached_bytes(100, 7_001 + CACHED_FOR_MS) == 0
    del piece
    file.close()


async def test_what_was_just_written_is_cached(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(0, [bytes(10_000)])

    assert disk.is_cached(file, 0, 10_000)
    await disk.read_ahead(file, 0, 10_000)
    file.close()


def test_a_disk_that_fails_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller reads on the worker then, where the error takes the directory offline."""
    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(0, [b"data"])

    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int) -> int:
        raise OSError(errno.EIO, "the disk fails as asked")

    monkeypatch.setattr(os, "preadv", preadv)
    assert not disk.is_cached(file, 0, 4)
    file.close()


def test_a_range_whose_middle_the_kernel_took_back_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(0, [bytes(1 << 20)])
    assert disk.is_cached(file, 0, 1 << 20)
    take_back(monkeypatch, range(1 << 18, 3 << 18))
    assert not disk.is_cached(file, 0, 1 << 20)
    assert disk.is_cached(file, 0, 1 << 18)
    file.close()


def take_back(patch: pytest.MonkeyPatch, cold: range) -> None:
    """Have the kernel tell that bytes are not in memory."""
    preadv = os.preadv

    def cached_only(fd: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        if position in cold:
            raise BlockingIOError
        warm = cold.start - position if position < cold.start else len(buffers[0])
        return preadv(fd, [memoryview(buffers[0])[:warm]], position)

    patch.setattr(os, "preadv", cached_only)


@pytest.mark.parametrize("position", [0, 100, 5_000])
async def test_a_read_that_would_wait_for_the_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    """Also where only the first part of it is in memory."""
    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(0, [b"x" * 10_000])
    with monkeypatch.context() as patch:
        take_back(patch, range(5_000, 10_000))
        assert file.read_cached(0, 5_000) == b"x" * 5_000
        with pytest.raises(NotCachedError) as lacking:
            file.read_cached(position, 10_000 - position)
    missing = lacking.value
    assert (missing.file, missing.position, missing.size) == (file, position, 10_000 - position)
    await disk.read_ahead(missing.file, missing.position, missing.size)

    assert file.read_cached(0, 10_000) == b"x" * 10_000
    assert file.read_cached(9_999, 5) == b"x"
    assert file.read_cached(10_000, 5) == b""
    file.close()


def test_a_file_says_when_it_was_last_written(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    os.utime(tmp_path / "f", ns=(0, 1_700_000_000_123_456_789))
    assert file.modified_ms == 1_700_000_000_123
    file.pwrite(0, [b"x"])
    assert file.modified_ms > 1_700_000_000_123
    file.set_modified_ms(1_700_000_000_456)
    assert file.modified_ms == 1_700_000_000_456
    file.close()
