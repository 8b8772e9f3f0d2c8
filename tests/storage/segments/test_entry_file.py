import pytest
import trio

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.simulated_file import SimulatedFile
from ottla.storage.segments.entry_file import WRITTEN_AT_ONCE
from ottla.storage.segments.indexes import TimeIndex


async def test_a_trim_that_was_overtaken_takes_away_no_entry_of_the_later_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    waits = iter((10, 0, 0, 0, 0))  # what the earlier trim asks of the disk comes last

    async def pause() -> None:
        await trio.sleep(next(waits))

    disk = SimulatedDisk(SeededRng(1), pause=pause)
    index = TimeIndex(disk, "", 0, 1 << 10)
    index.begin(capacity_bytes=1 << 10)
    for number in range(2):
        index.append_if_later(100 + number, number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(index.trim)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(2, 5):  # a truncation made the segment active again
            index.append_if_later(100 + number, number)
        await index.trim()
    index.seal()

    assert [index.entry_at(at) for at in range(index.count)] == [(100 + n, n) for n in range(5)]


async def test_a_trim_makes_a_cut_durable_that_a_failed_fsync_left_in_memory() -> None:
    disk = SimulatedDisk(SeededRng(1))
    index = TimeIndex(disk, "", 0, 1 << 10)
    index.begin()
    for number in range(3):
        index.append_if_later(100 + number, number)
    await index.trim()
    disk.flush_everything()
    index.truncate_to(0)
    disk.fail(DiskOperation.FSYNC)
    with pytest.raises(OSError):
        await index.trim()

    disk.kill()
    again = TimeIndex(disk, "", 0, 1 << 10)
    again.begin()
    await again.trim()
    disk.crash()

    last = TimeIndex(disk, "", 0, 1 << 10)
    last.open_sealed()
    assert last.count == 0


class CountingDisk(SimulatedDisk):
    """A disk that counts writes."""

    write_count = 0

    def write(self, file: SimulatedFile, position: int, data: bytes) -> None:
        """Count and write."""
        self.write_count += 1
        super().write(file, position, data)


async def test_entries_are_written_some_at_a_time_and_a_trim_misses_none() -> None:
    disk = CountingDisk(SeededRng(1))
    index = TimeIndex(disk, "", 0, 1 << 10)
    index.begin()
    count = 2 * WRITTEN_AT_ONCE
    for number in range(count):
        index.append_if_later(100 + number, number)
        index.write_if_due()
    assert disk.write_count == 2  # the first entry, and the next that were enough

    await index.trim()

    again = TimeIndex(disk, "", 0, 1 << 10)
    again.open_sealed()
    assert [again.entry_at(at) for at in range(count)] == [(100 + n, n) for n in range(count)]


async def test_an_index_that_begins_again_leaves_the_entries_of_other_empty_ones_alone() -> None:
    disk = SimulatedDisk(SeededRng(1))
    one, other = (TimeIndex(disk, "", base_offset, 1 << 10) for base_offset in (0, 100))
    one.begin()
    other.begin()
    one.append_if_later(100, 0)
    one.append_if_later(101, 1)
    one.begin()
    one.append_if_later(200, 2)
    assert [each.count for each in (one, other)] == [1, 0]
    assert one.entry_at(0) == (200, 2)
    other.append_if_later(300, 103)
    assert [one.entry_at(0), other.entry_at(0)] == [(200, 2), (300, 103)]
