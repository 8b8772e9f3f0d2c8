"""Copies, local deletion, expiry and reads of tiered partitions of one broker."""

from collections.abc import AsyncIterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.broker.tier.remote_log_manager_driver import RemoteLogManager
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.settings.storage.tier import TierConfig
from ottla.node.clock_driver import RealRng
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.remote_segment import RemoteRecord, RemoteSegmentState
from ottla.storage.tier.segment_upload_driver import SegmentFaultError
from ottla.storage.tier.store_seam import StoreError
from ottla.wire.batch import batches
from ottla.wire.records import scan
from tests.broker.conftest import World
from tests.broker.tier.tiered_broker import SETTINGS, lead, log_of, open_tiered

HOUR_S = 3_600.0


def values_in(records: bytes) -> list[tuple[int, bytes]]:
    """Return offset and value of each record of some batches."""
    return [
        (record.offset, record.value or b"")
        for at, header in batches(records)
        for record in scan(records, at, header)
    ]


async def test_closed_segments_are_copied_deleted_locally_and_read_back(world: World) -> None:
    async with open_tiered(world) as broker:
        partition = await broker.add()
        values = broker.fill(partition, 11)
        log = log_of(partition)
        segments = log.local_segments()
        assert len(segments) > 3
        async with broker.running():
            await broker.until(lambda: log.local_start_offset == segments[-1].base_offset)
        closed = segments[:-1]
        expected = [(each.base_offset, each.end_offset - 1) for each in closed]
        assert broker.finished(partition) == expected
        assert len(await broker.keys()) == 3 * len(closed)
        assert log.log_start_offset == 0
        found: list[tuple[int, bytes]] = []
        while len(found) < segments[-1].base_offset:
            read = await broker.reads.read(
                partition.key,
                log,
                Offset(len(found)),
                bytes_max=1_000_000,
                at_least_one=True,
                read_committed=False,
            )
            found += values_in(read.records)
        assert found == list(enumerate(values))[: len(found)]
        highest = broker.reads.highest_remote(partition.key)
        assert highest == (segments[-1].base_offset - 1, partition.leader_epoch)
        assert broker.metadata.refused == []
        assert broker.errors.counts.total() == 0


async def test_records_that_are_not_committed_are_not_copied(world: World) -> None:
    async with open_tiered(world) as broker:
        partition = await broker.add()
        broker.fill(partition, 11)
        log = log_of(partition)
        segments = log.local_segments()
        log.state.high_watermark = Offset(segments[1].end_offset)
        async with broker.running():
            await broker.until(lambda: len(broker.finished(partition)) == 2)
            await trio.sleep(0.1)
        assert broker.finished(partition)[-1] == (
            segments[1].base_offset,
            segments[1].end_offset - 1,
        )
        assert log.local_start_offset == segments[2].base_offset


class FlakyStore(MemoryObjectStore):
    """A store whose puts fail for a number of times."""

    failure_count = 0

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        if key.endswith(".manifest.json") and self.failure_count:
            self.failure_count -= 1
            error = StoreError("the disk of the store is full")
            error.is_retriable = False
            raise error
        await super().put(key, content, only_new=only_new)


async def test_a_failed_copy_is_removed_and_repeated_with_another_id(world: World) -> None:
    store = FlakyStore()
    store.failure_count = 2
    async with open_tiered(world, store) as broker:
        partition = await broker.add()
        broker.fill(partition, 5)
        log = log_of(partition)
        start = log.local_segments()[-1].base_offset
        async with broker.running():
            await broker.until(lambda: log.local_start_offset == start)
        assert broker.figures.failures["copies", "orders"] == 2
        assert set(broker.states(partition)) == {"COPY_FINISHED"}
        assert len(await broker.keys()) == 3 * len(broker.finished(partition))


class HangingStore(MemoryObjectStore):
    """A store whose first upload of records never ends."""

    has_hung = False

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        if not self.has_hung:
            self.has_hung = True
            await trio.sleep_forever()
        await super().put_stream(key, parts)


async def test_an_upload_that_hangs_is_cancelled_and_repeated(world: World) -> None:
    async with open_tiered(world, HangingStore()) as broker:
        broker.ports = replace(broker.ports, config=replace(SETTINGS, copy_timeout_ms=200))
        broker.manager = RemoteLogManager(world.table, broker.ports)
        partition = await broker.add()
        broker.fill(partition, 5)
        log = log_of(partition)
        start = log.local_segments()[-1].base_offset
        async with broker.running():
            await broker.until(lambda: log.local_start_offset == start)
        assert broker.figures.failures["copies", "orders"] >= 1
        assert set(broker.states(partition)) == {"COPY_FINISHED"}


class DownStore(MemoryObjectStore):
    """A store that fails while it is down."""

    is_down = False
    refused_count = 0

    def _require_up(self) -> None:
        if self.is_down:
            self.refused_count += 1
            raise StoreError("the store is down")

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        self._require_up()
        await super().put(key, content, only_new=only_new)

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        self._require_up()
        await super().put_stream(key, parts)

    async def delete(self, keys: Sequence[str]) -> None:
        self._require_up()
        await super().delete(keys)


@pytest.fixture
def simulated(tmp_path: Path) -> World:
    """A broker whose disk is simulated, so that virtual time passes only in pauses."""
    return World(tmp_path, SimulatedDisk(RealRng()))


async def test_a_store_that_is_down_does_not_fill_the_metadata_topic(
    simulated: World, autojump_clock: Any
) -> None:
    world, store = simulated, DownStore()
    async with open_tiered(world, store, timeout_s=2 * HOUR_S) as broker:
        broker.ports = replace(broker.ports, config=TierConfig())
        broker.manager = RemoteLogManager(world.table, broker.ports)
        partitions = [await broker.add(topic) for topic in ("orders", "audit")]
        for partition in partitions:
            broker.fill(partition, 5)
        async with broker.running():
            await broker.until(lambda: all(map(broker.finished, partitions)))
            store.is_down = True
            for partition in partitions:
                broker.fill(partition, 11)
            before = len(broker.metadata.records)
            await trio.sleep(HOUR_S)
            assert len(broker.metadata.records) - before <= 2 * len(partitions)
            assert store.refused_count > HOUR_S / 60
            store.is_down = False
            ends = [log_of(one).local_segments()[-1].base_offset - 1 for one in partitions]
            with trio.fail_after(90):
                for partition, end in zip(partitions, ends, strict=True):
                    while broker.finished(partition)[-1][1] < end:
                        await trio.sleep(1)
            await trio.sleep(60)
        for partition in partitions:
            assert set(broker.states(partition)) == {"COPY_FINISHED"}


class DamagedSource(MemoryObjectStore):
    """A store whose uploads find that the segment on the disk is damaged."""

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        raise SegmentFaultError("the segment at offset 0 is damaged")


async def test_a_damaged_segment_is_tried_again_once_an_hour(
    simulated: World, autojump_clock: Any
) -> None:
    world = simulated
    async with open_tiered(world, DamagedSource(), timeout_s=11 * HOUR_S) as broker:
        broker.ports = replace(broker.ports, config=TierConfig())
        broker.manager = RemoteLogManager(world.table, broker.ports)
        broker.fill(await broker.add(), 5)
        async with broker.running():
            await trio.sleep(10 * HOUR_S)
        assert 15 < broker.figures.failures["copies", "orders"] < 25


async def test_nothing_is_deleted_locally_before_its_copy_is_finished(world: World) -> None:
    async with open_tiered(world) as broker:
        partition = await broker.add()
        broker.fill(partition, 11)
        log = log_of(partition)

        def refuse(record: RemoteRecord) -> RefusedError | None:
            if record.state is RemoteSegmentState.COPY_FINISHED:
                return RefusedError(ErrorCode.NOT_ENOUGH_REPLICAS)
            return None

        broker.metadata.before_write = refuse
        async with broker.running():
            await broker.until(lambda: broker.figures.failures["copies", "orders"] >= 2)
        assert log.local_start_offset == 0
        assert broker.finished(partition) == []


async def test_expired_copies_go_after_the_log_start_has_moved(world: World) -> None:
    async with open_tiered(world) as broker:
        partition = await broker.add()
        broker.fill(partition, 11)
        log = log_of(partition)
        starts: list[int] = []

        def note(record: RemoteRecord) -> None:
            if record.state is RemoteSegmentState.DELETE_STARTED:
                starts.append(log.log_start_offset)

        async with broker.running():
            end = log.local_segments()[-1].base_offset
            await broker.until(lambda: log.local_start_offset == end)
            broker.metadata.before_write = note
            log.config = replace(log.config, retention_ms=1_000)
            world.clock.now_ms += 10_000
            await broker.until(lambda: not broker.metadata.segments(partition))
        assert log.log_start_offset == end
        assert starts
        assert set(starts) == {end}
        assert await broker.keys() == []


async def test_a_follower_learns_how_far_its_log_is_copied(world: World) -> None:
    async with open_tiered(world) as broker:
        partition = await broker.add()
        broker.fill(partition, 11)
        log = log_of(partition)
        log.config = replace(log.config, local_retention_bytes=-1)
        async with broker.running():
            count = log.segment_count - 1
            await broker.until(lambda: len(broker.finished(partition)) == count)
            lead(partition, leader=2, epoch=4)
            log.config = replace(log.config, local_retention_bytes=0)
            end = log.local_segments()[-1].base_offset
            await broker.until(lambda: log.local_start_offset == end)
        assert log.log_start_offset == 0
        assert len(broker.finished(partition)) == count


async def test_a_deposed_leader_does_not_finish_its_copy(world: World) -> None:
    async with open_tiered(world) as broker:
        partition = await broker.add()
        broker.fill(partition, 5)

        def depose(record: RemoteRecord) -> None:
            lead(partition, leader=2, epoch=4)

        broker.metadata.before_write = depose
        async with broker.running():
            await broker.until(lambda: bool(broker.metadata.records))
            await trio.sleep(0.1)
        assert broker.states(partition) == ["COPY_STARTED"]


async def test_the_copies_of_a_deleted_topic_are_deleted(world: World) -> None:
    async with open_tiered(world) as broker:
        partition = await broker.add()
        broker.fill(partition, 11)
        async with broker.running():
            count = log_of(partition).segment_count - 1
            await broker.until(lambda: len(broker.finished(partition)) == count)
            image = world.table.image
            world.table.image = replace(
                image,
                topics=image.topics.delete(partition.topic_id),
                topic_ids=image.topic_ids.delete(partition.topic),
            )
            world.table.remove(partition)
            log = partition.remove()
            assert log is not None
            await broker.until(lambda: partition.key not in broker.metadata.assigned)
            log.abandon()
        assert broker.metadata.segments(partition) == []
        assert await broker.keys() == []
