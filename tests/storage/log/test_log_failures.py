"""A log on a full or failing disk: nothing half-written stays, and the error has its reason."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from ottla.model.errors import RefusedError
from ottla.model.ids import Offset
from ottla.storage.disk.disk_seam import Chunk, DiskFile
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.disk.real_file_driver import RealFile
from ottla.storage.log.log import Log
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS, Workbench, append, read_values

TINY_DISK_BYTES = 2 << 20
CONFIG = LogConfig(segment_bytes=200_000, index_interval_bytes=0)


def batch(value: bytes, size: int = 10_000) -> bytes:
    return build_batch([(NOW_MS, b"k", value.ljust(size, b"."))])


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a real file system of 2 MB; only root may."""
    point = tmp_path / "tiny"
    point.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", f"size={TINY_DISK_BYTES}", "tmpfs", str(point)]
    if os.geteuid() != 0 or mount is None:
        pytest.skip("NOT TESTED: a full disk needs root, to mount a small file system")
    mounted = subprocess.run([mount, *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"NOT TESTED: a full disk; mount said: {mounted.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)


@pytest.fixture
def full_bench(tiny_disk: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tiny_disk / "orders-2"))
    yield bench
    bench.let_go()


def fill(log: Log) -> int:
    """Append until the disk is full; return how many batches it took."""
    for count in range(1000):
        try:
            append(log, batch(b"%d" % count))
        except RefusedError as refused:
            assert refused.code.name == "KAFKA_STORAGE_ERROR"
            return count
    raise AssertionError("the disk never got full")


def expected(count: int) -> list[tuple[int, bytes]]:
    return [(i, b"%d" % i) for i in range(count)]


def found(log: Log) -> list[tuple[int, bytes]]:
    return [(offset, (value or b"").rstrip(b".")) for offset, value in read_values(log)]


def _first_offset(log: Log, start: int) -> int:
    """Return the base offset of what is read from `start` on. The read ends here, since a read that
    a test keeps would hold its file open, and the tiny disk could not be unmounted."""
    read = log.read(Offset(start), bytes_max=1, end_offset=log.end_offset, at_least_one=True)
    return read.base_offset


async def test_a_full_disk_refuses_appends_and_leaves_whole_batches(
    full_bench: Workbench, tiny_disk: Path
) -> None:
    filler = tiny_disk / "filler"
    filler.write_bytes(bytes(500_000))
    log = await full_bench.open(CONFIG)

    count = fill(log)
    for _ in range(3):
        with pytest.raises(RefusedError, match="is full; retry"):
            append(log, batch(b"x"))

    assert log.failure is None
    assert (log.end_offset, found(log)) == (count, expected(count))
    files = sorted(Path(full_bench.directory).glob("*.log"))
    assert sum(file.stat().st_size for file in files) == log.size_bytes


@pytest.mark.parametrize("is_killed", [True, False])
async def test_the_log_goes_on_when_there_is_room_again(
    full_bench: Workbench, tiny_disk: Path, is_killed: bool
) -> None:
    filler = tiny_disk / "filler"
    filler.write_bytes(bytes(900_000))
    log = await full_bench.open(CONFIG)
    count = fill(log)

    filler.unlink()
    for more in range(count, count + 30):
        assert append(log, batch(b"%d" % more)).base_offset == more
    assert await log.flush() == count + 30
    if is_killed:
        log = await full_bench.kill_and_open(log, recovery_point=log.recovery_point)
    else:
        log = await full_bench.close_and_open(log)

    assert found(log) == expected(count + 30)
    for start in range(count + 30):  # every index entry leads to its batch
        assert _first_offset(log, start) == start


class FaultyFile(RealFile):
    """A file whose next calls fail with the errors in `faults`, after writing part of the bytes."""

    __slots__ = ("faults",)

    def __init__(self, file: RealFile, faults: dict[str, int]) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        file.close()
        self.faults = faults

    def pwrite(self, position: int, chunks: Sequence[Chunk]) -> None:
        if "write" in self.faults:
            super().pwrite(position, [b"".join(chunks)[:-1]])
            raise OSError(self.faults["write"], "the write failed")
        super().pwrite(position, chunks)

    def set_size(self, size: int) -> None:
        if "cut" in self.faults:
            raise OSError(self.faults["cut"], "the cut failed")
        super().set_size(size)


class FaultyDisk(RealDisk):
    """A disk whose log files fail on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[str, int] = {}
        self.fsyncs: list[str] = []

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        return FaultyFile(file, self.faults) if path.endswith(".log") else file

    async def fsync(self, file: DiskFile) -> None:
        self.fsyncs.append(file.path)
        if "fsync" in self.faults:
            raise OSError(self.faults["fsync"], "the fsync failed")
        await super().fsync(file)

    async def write_back(self, file: DiskFile) -> None:
        if "write back" in self.faults:
            raise OSError(self.faults["write back"], "the write-back failed")
        await super().write_back(file)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def bench(tmp_path: Path, disk: FaultyDisk) -> Iterator[Workbench]:
    bench = Workbench(disk, str(tmp_path / "orders-2"))
    yield bench
    disk.faults.clear()
    bench.let_go()


@pytest.mark.parametrize(
    ("faults", "is_online"),
    [
        ({"write": errno.ENOSPC}, True),
        ({"write": errno.EDQUOT}, True),
        ({"write": errno.EIO}, False),
        ({"write": errno.ENOSPC, "cut": errno.EIO}, False),
    ],
)
async def test_a_failed_write_is_taken_back_or_the_log_goes_offline(
    bench: Workbench, disk: FaultyDisk, faults: dict[str, int], is_online: bool
) -> None:
    log = await bench.open(LogConfig())
    append(log, batch(b"0"))
    disk.faults.update(faults)
    with pytest.raises(RefusedError, match="KAFKA_STORAGE_ERROR"):
        append(log, batch(b"1"))
    disk.faults.clear()

    assert (log.failure is None) == is_online
    if is_online:
        assert append(log, batch(b"1")).base_offset == 1
    else:
        with pytest.raises(RefusedError, match="KAFKA_STORAGE_ERROR"):
            append(log, batch(b"1"))
    log = await bench.kill_and_open(log)
    assert found(log) == expected(2 if is_online else 1)


async def test_a_failed_write_back_takes_the_log_offline(
    bench: Workbench, disk: FaultyDisk
) -> None:
    log = await bench.open(LogConfig())
    append(log, batch(b"0"))
    disk.faults["write back"] = errno.EIO
    with pytest.raises(RefusedError, match="the write-back failed"):
        await log.write_back()
    disk.faults.clear()

    with pytest.raises(RefusedError, match="the write-back failed"):
        append(log, batch(b"1"))


async def test_a_failed_fsync_takes_the_log_offline_and_moves_no_recovery_point(
    bench: Workbench, disk: FaultyDisk
) -> None:
    log = await bench.open(LogConfig())
    append(log, batch(b"0"))
    disk.faults["fsync"] = errno.EIO
    with pytest.raises(RefusedError, match="the fsync failed"):
        await log.flush()
    disk.faults.clear()

    with pytest.raises(RefusedError, match="the fsync failed"):
        await log.flush()
    assert log.recovery_point == 0


async def test_what_is_flushed_is_not_flushed_again(bench: Workbench, disk: FaultyDisk) -> None:
    log = await bench.open(LogConfig(flush_messages=2))
    append(log, batch(b"0"))
    assert not log.is_flush_due
    append(log, batch(b"1"))
    assert (log.is_flush_due, log.unflushed_since_ms) == (True, NOW_MS)
    disk.fsyncs.clear()

    assert await log.flush() == 2
    assert (log.is_flush_due, log.unflushed_since_ms) == (False, None)
    assert await log.flush() == 2

    assert [os.path.basename(path) for path in disk.fsyncs] == ["00000000000000000000.log"]


class SlowDisk(RealDisk):
    """A disk whose fsyncs wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = trio.Event()
        self.go_on = trio.Event()

    async def fsync(self, file: DiskFile) -> None:
        self.begun.set()
        await self.go_on.wait()
        await super().fsync(file)


async def test_a_flush_that_a_truncation_overtakes_promises_nothing_of_later_bytes(
    tmp_path: Path,
) -> None:
    disk = SlowDisk()
    bench = Workbench(disk, str(tmp_path / "orders-2"))
    log = await bench.open(LogConfig(), is_clean=True)
    for i in range(4):
        append(log, batch(b"%d" % i))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.flush)
        await disk.begun.wait()
        nursery.start_soon(log.truncate_to, Offset(2))
        await trio.testing.wait_all_tasks_blocked()
        assert log.recovery_point == 0
        disk.go_on.set()

    assert (log.recovery_point, log.end_offset) == (2, 2)
    bench.let_go()
