"""Indexes that are not in memory: no look-up waits for them, and each succeeds once they are read.

The world's disk refuses a plain read of what was not brought in (`ColdReadError`).
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import Offset
from ottla.model.run_now import run_now
from ottla.storage.disk.disk_seam import NotCachedError, when_cached
from ottla.storage.disk.slice import FileSlice
from ottla.storage.log.log import Log
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.segment import RECENT_BATCH_COUNT_MAX
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS, Workbench, append, read_values

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=300, segment_index_bytes=960)
VALUES = [b"%0150d" % number for number in range(3 * RECENT_BATCH_COUNT_MAX)]


async def filled(disk: SimulatedDisk) -> tuple[Workbench, Log]:
    """Return a log of several segments, all flushed and none of it in memory."""
    bench = Workbench(disk, "/logs/orders-0")
    log = await bench.open(CONFIG)
    for number, value in enumerate(VALUES):
        append(log, build_batch([(NOW_MS + number, None, value)]))
    log.update_high_watermark(log.end_offset)
    await log.flush()
    assert log.segment_count > 3
    disk.evict("/logs")
    return bench, log


async def test_a_read_of_old_records_says_what_it_lacks_until_it_is_here() -> None:
    disk = SimulatedDisk(SeededRng(1))
    _, log = await filled(disk)
    for offset in range(0, len(VALUES) - RECENT_BATCH_COUNT_MAX, 37):
        disk.evict("/logs")
        lacked = 0
        while True:
            try:
                found = log.read(
                    Offset(offset), bytes_max=400, end_offset=log.end_offset, at_least_one=True
                )
                break
            except NotCachedError as missing:
                lacked += 1
                assert not disk.is_cached(missing.file, missing.position, missing.size)
                await disk.read_ahead(missing.file, missing.position, missing.size)
        assert 1 <= lacked <= 4
        assert found.slice is not None
        assert VALUES[offset] in found.slice.read()


async def test_a_reader_of_the_newest_records_reads_nothing_before_it_sends() -> None:
    disk = SimulatedDisk(SeededRng(1))
    _, log = await filled(disk)
    disk.fail(DiskOperation.READ, times=1_000)
    for offset in range(log.state.active.base_offset, len(VALUES)):
        found = log.read(
            Offset(offset), bytes_max=1_000, end_offset=log.end_offset, at_least_one=True
        )
        assert found.slice is not None


@pytest.mark.parametrize("whole_batches", (False, True))
async def test_a_single_read_finds_what_other_reads_do_and_says_the_same_that_it_lacks(
    whole_batches: bool,
) -> None:
    disk = SimulatedDisk(SeededRng(1))
    bench = Workbench(disk, "/logs/orders-0")
    log = await bench.open(LogConfig(index_interval_bytes=300))
    for number, value in enumerate(VALUES):
        append(log, build_batch([(NOW_MS + number, None, value * 30)]))
    for offset in range(0, len(VALUES), 37):
        disk.evict("/logs")
        end_offset = log.end_offset
        while True:
            lacked = None
            try:
                usual = log.read(
                    Offset(offset),
                    bytes_max=6_000,
                    end_offset=end_offset,
                    at_least_one=True,
                    whole_batches=whole_batches,
                ).slice
            except NotCachedError as error:
                lacked = (error.position, error.size)
            try:
                single = log.reader.read_single(
                    Offset(offset),
                    bytes_max=6_000,
                    end_offset=end_offset,
                    now_ms=0,
                    whole_batches=whole_batches,
                )
            except NotCachedError as error:
                assert lacked == (error.position, error.size)
                await disk.read_ahead(error.file, error.position, error.size)
                continue
            assert lacked is None
            break
        assert isinstance(single, FileSlice)
        assert usual is not None
        assert (single.position, single.length) == (usual.position, usual.length)


async def test_who_reads_batch_by_batch_needs_the_index_once() -> None:
    disk = SimulatedDisk(SeededRng(1))
    _, log = await filled(disk)
    segment = log.state.segments[1]
    count = log.state.segments[2].base_offset - segment.base_offset
    await disk.read_ahead(segment.file, 0, segment.size_bytes)
    found = await when_cached(disk, lambda: segment.find(segment.base_offset + 3))
    disk.evict(segment.offset_index.path)
    for number in range(4, count):
        position = 0 if found is None else found[0] + found[2]
        found = segment.find(segment.base_offset + number)
        assert found is not None
        assert found[:2] == (position, segment.base_offset + number)
    with pytest.raises(NotCachedError):
        segment.find(segment.base_offset + 3)


async def test_what_lay_behind_a_batch_is_forgotten_when_the_log_is_cut() -> None:
    log = await Workbench(SimulatedDisk(SeededRng(1)), "/logs/orders-0").open(LogConfig())
    for _ in range(2 * RECENT_BATCH_COUNT_MAX):
        append(log, build_batch([(NOW_MS, None, b"long" * 99)]))
    segment = log.state.active
    await log.truncate_to(Offset(20))
    for _ in range(2 * RECENT_BATCH_COUNT_MAX):
        append(log, build_batch([(NOW_MS, None, b"short")]))
    found = segment.find(21)  # the cut itself has looked for what begins at 20
    assert found is not None
    assert found[1:] == (21, len(build_batch([(NOW_MS, None, b"short")])))


async def by_time(log: Log) -> object:
    found = await log.offset_for_timestamp(NOW_MS + 100, log.end_offset)
    return None if found is None else found.offset


async def by_largest_time(log: Log) -> object:
    found = await log.max_timestamp_offset(log.end_offset)
    return None if found is None else found.offset


async def cut(log: Log) -> object:
    await log.truncate_to(Offset(101))
    largest_ms = max(segment.max_timestamp_ms for segment in log.state.segments)
    return log.end_offset, largest_ms - NOW_MS, [value for _, value in read_values(log)]


async def deletion(log: Log) -> object:
    await log.delete_records_before(Offset(100))
    return [value for _, value in read_values(log)]


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (by_time, 100),
        (by_largest_time, len(VALUES) - 1),
        (cut, (101, 100, VALUES[:101])),
        (deletion, VALUES[100:]),
    ],
)
async def test_what_looks_into_a_cold_log_waits_beside_the_loop(
    work: Callable[[Log], Any], expected: object
) -> None:
    _, log = await filled(SimulatedDisk(SeededRng(1)))
    assert await work(log) == expected


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_cold_log_is_opened_without_a_read_on_the_loop(is_clean: bool) -> None:
    disk = SimulatedDisk(SeededRng(1))
    bench, log = await filled(disk)
    if is_clean:
        await log.close()
    disk.flush_everything()
    disk.crash()
    end_offset = Offset(len(VALUES)) if is_clean else Offset(0)
    again = await bench.open(CONFIG, is_clean=is_clean, recovery_point=end_offset)
    assert [value for _, value in read_values(again)] == VALUES


def test_a_look_that_lacks_something_has_changed_nothing() -> None:
    async def look() -> None:
        disk = SimulatedDisk(SeededRng(1))
        _, log = await filled(disk)
        segment = log.state.segments[0]
        with pytest.raises(NotCachedError):
            segment.place_to_cut(5)
        with pytest.raises(NotCachedError):
            segment.activate(CONFIG)
        assert segment.is_sealed
        assert segment.offset_index.is_sealed

    run_now(look())
