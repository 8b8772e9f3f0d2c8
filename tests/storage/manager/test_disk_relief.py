"""Copied segments that are deleted because a log directory is short of free space."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId, Offset, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.tier import TierConfig
from ottla.storage.log.log import Log
from ottla.storage.manager.disk_relief_driver import DiskRelief
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.tier.reads.cached_files_driver import CachedFiles
from tests.storage.manager.test_log_upkeep import TrioClock, append, formatted_disk

FREE_BYTES = 2_000
SEGMENT_BYTES = 770
BROKER = BrokerConfig(
    node_id=NodeId(1),
    log_dirs=("/one",),
    tier=TierConfig(is_enabled=True, store_uri="memory:", local_free_bytes_min=FREE_BYTES),
)
CONFIG = LogConfig(
    segment_bytes=1_000, is_tiered=True, retention_ms=-1, file_delete_delay_ms=3_600_000
)


class Volume:
    """A log directory on a volume that is full except for some bytes."""

    def __init__(self, disk: SimulatedDisk, logs: LogManager) -> None:
        self.disk = disk
        self.logs = logs
        (self.relief,) = logs.reliefs
        assert isinstance(self.relief, DiskRelief)
        self.short_count = 0
        self.relief.on_short = self._on_short

    def _on_short(self) -> None:
        self.short_count += 1

    async def add(self, name: str, count: int, *, copied: int, now_ms: int = 1_000) -> Log:
        """Create a log with `count` segments of one record, of which `copied` are copied."""
        log = await self.logs.create(
            TopicPartition(name, 0), UUID(bytes=name.encode() * 16), CONFIG
        )
        await log.keep()
        for _ in range(count):
            append(log, b"x" * 700, now_ms=now_ms)
        log.update_high_watermark(log.end_offset)
        log.copied_offset = Offset(copied - 1)
        return log

    def set_free(self, free_bytes: int) -> None:
        self.disk.capacity_bytes = self.disk.used_bytes + free_bytes

    async def free_bytes(self) -> int:
        return (await self.disk.space("/one")).usable_bytes


@asynccontextmanager
async def volume() -> AsyncIterator[Volume]:
    disk = await formatted_disk("/one")
    async with open_log_manager(disk, BROKER, TrioClock(), SeededRng(5)) as logs:
        await logs.recover(lambda partition: CONFIG)
        yield Volume(disk, logs)


async def test_copied_segments_are_deleted_until_enough_is_free(autojump_clock: MockClock) -> None:
    async with volume() as own:
        log = await own.add("a", 8, copied=6)
        own.set_free(FREE_BYTES)
        await own.relief.relieve()
        assert (own.relief.segment_count, log.local_start_offset) == (0, 0)
        own.set_free(FREE_BYTES - SEGMENT_BYTES - 1)
        await own.relief.relieve()
        assert own.relief.segment_count == log.local_start_offset == 2
        assert await own.free_bytes() >= FREE_BYTES
        assert log.log_start_offset == 0
        assert own.short_count == 0


async def test_segments_that_are_not_copied_stay_and_copies_begin(
    autojump_clock: MockClock,
) -> None:
    async with volume() as own:
        log = await own.add("a", 6, copied=2)
        own.set_free(0)
        await own.relief.relieve()
        assert log.local_start_offset == 2
        assert own.short_count == 1
        assert log.segment_count == 4


async def test_a_segment_above_the_high_watermark_stays(autojump_clock: MockClock) -> None:
    async with volume() as own:
        log = await own.add("a", 6, copied=5)
        log.state.high_watermark = Offset(3)
        own.set_free(0)
        await own.relief.relieve()
        assert log.local_start_offset == 3


async def test_a_log_that_is_read_keeps_its_segments_longer(autojump_clock: MockClock) -> None:
    async with volume() as own:
        await trio.sleep(100)
        first, second = await own.add("a", 4, copied=3), await own.add("b", 4, copied=3)
        await first.read_cold(
            Offset(0), bytes_max=10_000, end_offset=first.end_offset, at_least_one=True
        )
        own.set_free(FREE_BYTES - 2 * SEGMENT_BYTES)
        await own.relief.relieve()
        assert first.local_start_offset == 0
        assert second.local_start_offset > 0


async def test_files_that_wait_for_their_removal_go_first(autojump_clock: MockClock) -> None:
    async with volume() as own:
        log = await own.add("a", 8, copied=6)
        await log.delete_copied_segments(Offset(3))
        own.set_free(FREE_BYTES - 2 * SEGMENT_BYTES)
        await own.relief.relieve()
        assert log.local_start_offset == 3
        assert own.relief.segment_count == 0
        assert await own.free_bytes() >= FREE_BYTES


async def test_a_cache_of_copied_segments_shrinks_before_segments_are_deleted(
    autojump_clock: MockClock,
) -> None:
    async with volume() as own:
        log = await own.add("a", 8, copied=6)
        cache = CachedFiles(own.disk, "/one/cache", 10_000, free_bytes_min=FREE_BYTES)
        await cache.open()
        own.set_free(FREE_BYTES + 1_700)
        for name in ("1", "2", "3"):
            await cache.put(name, bytes(800))
        assert await own.free_bytes() >= FREE_BYTES
        assert ["1" in cache, "2" in cache, "3" in cache] == [False, True, False]
        own.relief.shrink_cache = cache.shrink
        own.set_free(FREE_BYTES - 500)
        await own.relief.relieve()
        assert cache.size_bytes == 0
        assert log.local_start_offset == 0
        own.set_free(FREE_BYTES - 1)
        await own.relief.relieve()
        assert log.local_start_offset > 0


async def test_the_disk_is_looked_at_each_second(autojump_clock: MockClock) -> None:
    async with volume() as own, trio.open_nursery() as nursery:
        log = await own.add("a", 8, copied=6)
        own.set_free(FREE_BYTES - 1)
        nursery.start_soon(own.logs.run_periodically)
        await trio.sleep(1.5)
        assert log.local_start_offset > 0
        nursery.cancel_scope.cancel()


def test_the_setting_needs_tiered_storage() -> None:
    with pytest.raises(ConfigError, match="needs tiered storage"):
        TierConfig(local_free_bytes_min=1)
