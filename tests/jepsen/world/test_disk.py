"""Both disks keep the contract of Disk, and the world's loses exactly the unflushed bytes in a
crash."""

import errno
from pathlib import Path

import pytest
import trio
import trio.testing

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.storage.disk.real_disk_driver import RealDisk
from tests.jepsen.world.disk_conformance import CHECKS, Check, check_disk_conforms

ROOT = "/data"


async def disk_with_root(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(SeededRng(seed), pause=trio.lowlevel.checkpoint)
    await disk.makedirs(ROOT)
    disk.flush_everything()
    return disk


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_real_disk_conforms(check: Check, tmp_path: Path) -> None:
    async with RealDisk([str(tmp_path)]) as disk:
        await check(disk, str(tmp_path))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_worlds_disk_conforms(check: Check) -> None:
    await check(await disk_with_root(), ROOT)


async def test_the_suite_runs_as_one_and_notices_a_lie() -> None:
    await check_disk_conforms(lambda: (SimulatedDisk(SeededRng(0)), "/"))
    with pytest.raises(AssertionError):
        await check_disk_conforms(lambda: (ForgetfulDisk(SeededRng(0)), "/"))


class ForgetfulDisk(SimulatedDisk):
    async def unlink(self, path: str) -> None:
        """Break a promise: the name stays."""


async def test_a_crash_keeps_all_that_was_flushed() -> None:
    for seed in range(50):
        disk = await disk_with_root(seed)
        file = disk.open(f"{ROOT}/f", create=True)
        file.pwrite(0, [b"durable"])
        await disk.fsync(file)
        await disk.fsync_directory(ROOT)
        file.pwrite(7, [b"volatile"])
        disk.crash()
        content = await disk.read_file(f"{ROOT}/f")
        assert content.startswith(b"durable")
        assert b"durablevolatile".startswith(content.rstrip(b"\0"))


async def outcomes_of_a_crash(*, is_name_flushed: bool) -> set[bytes | None]:
    seen: set[bytes | None] = set()
    for seed in range(1_000):
        disk = await disk_with_root(seed)
        file = disk.open(f"{ROOT}/f", create=True)
        if is_name_flushed:
            await disk.fsync_directory(ROOT)
        file.pwrite(0, [b"ab"])
        file.pwrite(2, [b"cd"])
        disk.crash()
        seen.add(await disk.read_file(f"{ROOT}/f") if disk.exists(f"{ROOT}/f") else None)
    return seen


async def test_a_crash_may_lose_keep_tear_and_reorder_what_was_not_flushed() -> None:
    seen = await outcomes_of_a_crash(is_name_flushed=True)
    lost = {b"a\0\0\0", b"ab\0\0", b"abc\0", bytes(4)}
    assert seen == {b"", b"a", b"ab", b"abc", b"abcd", b"\0\0cd"} | lost


async def test_a_crash_may_keep_any_sectors_of_one_write() -> None:
    seen = set()
    for seed in range(200):
        disk = await disk_with_root(seed)
        file = disk.open(f"{ROOT}/f", create=True)
        await disk.fsync_directory(ROOT)
        file.pwrite(500, [b"x" * 1_036])  # the ends of two sectors and two whole ones
        disk.crash()
        content = (await disk.read_file(f"{ROOT}/f")).ljust(1_536, b"\0")
        seen.add(tuple(content[at] == ord("x") for at in (500, 512, 1_024, 1_535)))
    assert (True, False, True, True) in seen
    assert (False, True, False, False) in seen


async def test_of_names_that_were_not_flushed_a_crash_may_keep_any() -> None:
    seen = set()
    for seed in range(100):
        disk = await disk_with_root(seed)
        for name in "abc":
            disk.open(f"{ROOT}/{name}", create=True)
        disk.crash()
        seen.add("".join(await disk.listdir(ROOT)))
    assert seen == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


async def test_a_name_is_durable_only_with_its_directory() -> None:
    assert None in await outcomes_of_a_crash(is_name_flushed=False)


async def test_a_rename_survives_whole_or_not_at_all() -> None:
    seen = set()
    for seed in range(50):
        disk = await disk_with_root(seed)
        await disk.write_atomically(f"{ROOT}/old", b"x")
        await disk.rename(f"{ROOT}/old", f"{ROOT}/new")
        disk.crash()
        seen.add(tuple(await disk.listdir(ROOT)))
    assert seen == {("old",), ("new",)}


async def test_an_atomic_write_is_old_or_new_wherever_it_is_cut() -> None:
    for seed in range(20):
        for step in range(12):
            disk = await disk_with_root(seed)
            await disk.write_atomically(f"{ROOT}/f", b"old")
            with trio.CancelScope() as scope:
                disk._pause = CutAfter(step, scope)
                await disk.write_atomically(f"{ROOT}/f", b"new")
            disk._pause = None
            disk.crash()
            assert await disk.read_file(f"{ROOT}/f") in (b"old", b"new")


class CutAfter:
    """A pause that ends its scope at a chosen step."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self.step = step
        self.scope = scope

    async def __call__(self) -> None:
        if self.step == 0:
            self.scope.cancel()
        self.step -= 1
        await trio.lowlevel.checkpoint()


async def test_an_fsync_covers_only_what_was_written_before_it() -> None:
    disk = await disk_with_root()
    file = disk.open(f"{ROOT}/f", create=True)
    await disk.fsync_directory(ROOT)
    file.pwrite(0, [b"before"])

    async def write_meanwhile() -> None:
        file.pwrite(6, [b"after"])

    disk._pause = write_meanwhile
    await disk.fsync(file)
    assert file.inode.durable.read(0, 99) == b"before"


async def test_the_same_seed_loses_the_same_bytes() -> None:
    contents = []
    for _ in range(2):
        disk = await disk_with_root(7)
        file = disk.open(f"{ROOT}/f", create=True)
        await disk.fsync_directory(ROOT)
        for index in range(20):
            file.pwrite(index * 10, [b"%010d" % index])
        disk.crash()
        contents.append(await disk.read_file(f"{ROOT}/f"))
    assert contents[0] == contents[1]


async def test_handles_die_with_their_process() -> None:
    disk = await disk_with_root()
    file = disk.open(f"{ROOT}/f", create=True)
    disk.kill()
    with pytest.raises(OSError):
        file.pwrite(0, [b"from the grave"])
    assert await disk.read_file(f"{ROOT}/f") == b""


async def test_a_full_disk_takes_what_fits() -> None:
    disk = await disk_with_root()
    file = disk.open(f"{ROOT}/f", create=True)
    disk.capacity_bytes = 6
    file.pwrite(0, [b"1234"])
    with pytest.raises(OSError) as caught:
        file.pwrite(4, [b"5678"])
    assert caught.value.errno == errno.ENOSPC
    assert file.pread(0, 10) == b"123456"
    file.pwrite(0, [b"over"])  # rewriting takes no space
    disk.heal()
    file.pwrite(4, [b"5678"])


async def test_a_fault_strikes_where_and_when_it_was_asked_for() -> None:
    disk = await disk_with_root()
    file = disk.open(f"{ROOT}/f", create=True)
    other = disk.open(f"{ROOT}/g", create=True)
    disk.fail(DiskOperation.WRITE, errno.EIO, path_part="/f", skip_count=1)
    other.pwrite(0, [b"x"])
    file.pwrite(0, [b"x"])
    with pytest.raises(OSError) as caught:
        file.pwrite(0, [b"x"])
    assert caught.value.errno == errno.EIO
    file.pwrite(0, [b"x"])


async def test_a_failed_fsync_fails_ever_after() -> None:
    disk = await disk_with_root()
    file = disk.open(f"{ROOT}/f", create=True)
    file.pwrite(0, [b"x"])
    disk.fail(DiskOperation.FSYNC)
    for _ in range(3):
        with pytest.raises(OSError):
            await disk.fsync(file)
    assert file.inode.durable.read(0, 99) == b""


async def test_a_directory_that_hangs_blocks_no_other_directory() -> None:
    disk = await disk_with_root()
    await disk.makedirs("/other")
    goes_on = trio.Event()
    disk.faults.hang(ROOT, goes_on.wait)
    written: list[str] = []

    async def write(path: str) -> None:
        await disk.write_atomically(path, b"1")
        written.append(path)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, f"{ROOT}/f")
        nursery.start_soon(write, "/other/f")
        await trio.testing.wait_all_tasks_blocked()
        assert written == ["/other/f"]
        disk.faults.give_back(ROOT)
        goes_on.set()
    assert written == ["/other/f", f"{ROOT}/f"]


async def test_a_directory_that_is_lost_comes_back_with_all_it_held() -> None:
    disk = await disk_with_root()
    await disk.write_atomically(f"{ROOT}/f", b"1")
    disk.faults.lose(ROOT)
    assert not disk.exists(f"{ROOT}/f")
    with pytest.raises(OSError, match="gone"):
        await disk.makedirs(ROOT)
    with pytest.raises(OSError, match="gone"):
        disk.open(f"{ROOT}/f")
    disk.faults.give_back(ROOT)
    assert await disk.read_file(f"{ROOT}/f") == b"1"


async def test_a_fault_counts_the_calls_it_struck() -> None:
    disk = await disk_with_root()
    fault = disk.fail(DiskOperation.OPEN, errno.EMFILE, path_part="/f", skip_count=1, times=2)
    disk.open(f"{ROOT}/f", create=True)
    for _ in range(2):
        with pytest.raises(OSError, match="fails as asked"):
            disk.open(f"{ROOT}/f")
    assert fault.failed_count == 2
    disk.faults.take_back(fault)
    disk.open(f"{ROOT}/f")
