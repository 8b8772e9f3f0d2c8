"""Readers of large batches, one after the other: what the log reads before it answers them."""

import pytest

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import Offset
from ottla.storage.disk.disk_seam import NotCachedError
from ottla.storage.disk.slice import CACHED_FOR_MS, FileSlice
from ottla.storage.log.log import Log
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.segment import RECENT_BATCH_COUNT_MAX, WALK_HEADER_BYTES
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS, Workbench, append

RECORDS = 3
BATCHES = 2 * RECENT_BATCH_COUNT_MAX
BATCH = build_batch([(NOW_MS, None, b"v" * 4_000)] * RECORDS)
SMALL = build_batch([(NOW_MS, None, b"small")] * RECORDS)


async def filled(disk: SimulatedDisk, batches: list[bytes]) -> Log:
    log = await Workbench(disk, "/logs/orders-0").open(LogConfig())
    for batch in batches:
        append(log, batch)
    await log.flush()  # Pages that are not flushed cannot be evicted.
    return log


async def test_a_large_batch_is_found_by_its_header_alone() -> None:
    disk = SimulatedDisk(SeededRng(1))
    log = await filled(disk, [BATCH] * BATCHES)
    segment = log.state.active
    for number in range(3, BATCHES // 2, 7):
        disk.evict("/logs")
        position = number * len(BATCH)
        await disk.read_ahead(segment.file, position, WALK_HEADER_BYTES)
        assert segment.find(number * RECORDS) == (position, number * RECORDS, len(BATCH))


async def test_each_offset_is_found_among_large_and_small_batches() -> None:
    disk = SimulatedDisk(SeededRng(1))
    rng = SeededRng(2)
    batches = [BATCH if rng.below(2) else SMALL for _ in range(BATCHES)]
    log = await filled(disk, batches)
    segment = log.state.active
    position = 0
    for number, batch in enumerate(batches):
        for offset in range(number * RECORDS, (number + 1) * RECORDS):
            found = segment.find(offset)
            assert found is not None
            assert (found[0], found[2]) == (position, len(batch))
        position += len(batch)


def read(log: Log, number: int, now_ms: int) -> FileSlice:
    found = log.reader.read_single(
        Offset(number * RECORDS),
        bytes_max=2 * len(BATCH),
        end_offset=log.end_offset,
        now_ms=now_ms,
        whole_batches=False,
    )
    assert isinstance(found, FileSlice)
    return found


async def test_a_block_found_in_memory_is_not_looked_for_again_for_the_next_slices() -> None:
    disk = SimulatedDisk(SeededRng(1))
    log = await filled(disk, [BATCH] * BATCHES)
    file = log.state.active.file
    read(log, 3, now_ms=0)
    disk.evict("/logs")
    for number in (5, 6):
        await disk.read_ahead(file, number * len(BATCH), WALK_HEADER_BYTES)
    found = read(log, 5, now_ms=CACHED_FOR_MS)
    assert found.cached_bytes(found.position, CACHED_FOR_MS) == found.length
    with pytest.raises(NotCachedError):
        read(log, 6, now_ms=CACHED_FOR_MS + 1)
