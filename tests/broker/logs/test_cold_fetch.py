"""A fetch of records that are not in memory: the loop never waits for the disk."""

import errno
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.logs import cold_reads
from ottla.broker.logs.cold_reads import RANGES_PER_PARTITION_MAX
from ottla.broker.logs.fetch_read import DISK_WAIT_MS
from ottla.broker.logs.read_ahead_driver import ReadAheads
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.disk.disk_seam import NotCachedError
from ottla.storage.disk.slice import FileSlice
from ottla.storage.segments import segment
from ottla.storage.segments.segment import RECENT_BATCH_COUNT_MAX
from ottla.wire.batch import batches
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData

World = Any  # the class of the `world` fixture, in conftest.py

COUNT = 2 * RECENT_BATCH_COUNT_MAX


@pytest.fixture
async def cold(world: World) -> World:
    """Two partitions whose older records are not in memory."""
    world.disk = SimulatedDisk(SeededRng(1))
    await world.disk.makedirs(str(world.directory))
    for topic in ("cold", "hot"):
        partition = await world.add(topic)
        for _ in range(COUNT):
            partition.append(
                world.batch(b"v" * 100), acks=1, now_ms=world.clock.wall_ms(), mono_ms=1_000
            )
        await partition.log.flush()
    world.disk.evict()
    return world


def ask(
    world: World,
    *asked: tuple[str, int],
    wait_ms: int = 500,
    bytes_min: int = 1,
    bytes_max: int = 1_000,
) -> Any:
    """Begin a fetch of (topic, offset)s."""
    topics = [
        FetchTopic(
            topic_id=world.table.image.topic_ids[topic],
            partitions=[
                FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
            ],
        )
        for topic, offset in asked
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=topics,
    )
    return world.fetch(request)


def parts(call: Any) -> list[PartitionData]:
    response: FetchResponse = call.response(FetchResponse)
    return [part for topic in response.responses for part in topic.partitions]


def whole_batches(records: Any) -> Any:
    return batches(records, is_partial_end_allowed=True)


async def bring_in(world: World) -> None:
    """Have the disk answer all that waits for it now."""
    due, world.ranges_due[:] = list(world.ranges_due), []
    for piece, done in due:
        await world.disk.read_ahead(piece.file, piece.position, piece.length)
        done(None)


async def settle(world: World) -> int:
    """Have the disk answer until nothing waits for it; return how often that was."""
    rounds = 0
    while world.ranges_due:
        await bring_in(world)
        rounds += 1
    return rounds


async def test_a_fetch_of_cold_records_is_answered_when_they_are_here(cold: World) -> None:
    call = ask(cold, ("cold", 3))
    assert not call.is_completed
    assert 1 <= await settle(cold) <= 4
    (part,) = parts(call)
    assert part.records
    assert cold.fetch_api.cold_reads.range_count == 0


async def test_other_partitions_do_not_wait_for_a_disk_that_hangs(cold: World) -> None:
    call = ask(cold, ("cold", 3), ("hot", COUNT - 1))
    missing, found = parts(call)
    assert (missing.error_code, missing.high_watermark, missing.records) == (
        0,
        COUNT,
        b"",
    )
    assert found.records
    assert cold.ranges_due, "what is missing is on its way for the next fetch"


async def test_a_parked_fetch_is_woken_by_another_partition_while_a_disk_hangs(
    cold: World,
) -> None:
    call = ask(cold, ("cold", 3), ("hot", COUNT))
    assert not call.is_completed
    cold.table.find("hot", 0).append(
        cold.batch(b"news"), acks=1, now_ms=cold.clock.wall_ms(), mono_ms=1_000
    )
    missing, found = parts(call)
    assert not missing.records
    assert found.records


@pytest.mark.parametrize("wait_ms", [0, 500])
async def test_a_disk_that_hangs_delays_an_answer_only_so_long(cold: World, wait_ms: int) -> None:
    call = ask(cold, ("cold", 3), wait_ms=wait_ms)
    cold.purgatory.expire(cold.clock.now_ms + DISK_WAIT_MS - 1)
    assert not call.is_completed
    cold.purgatory.expire(cold.clock.now_ms + DISK_WAIT_MS)
    (part,) = parts(call)
    assert (part.error_code, part.records) == (0, b"")


async def test_who_has_no_patience_gets_what_the_disk_brings_however_little(cold: World) -> None:
    call = ask(cold, ("cold", COUNT - RECENT_BATCH_COUNT_MAX - 1), wait_ms=0, bytes_min=1 << 20)
    await settle(cold)
    (part,) = parts(call)
    assert part.records


async def test_a_range_that_many_ask_for_is_brought_in_once(cold: World) -> None:
    calls = [ask(cold, ("cold", 3)) for _ in range(5)]
    assert len(cold.ranges_due) == 1
    await settle(cold)
    assert all(parts(call)[0].records for call in calls)


async def test_a_partition_has_a_few_ranges_brought_in_at_once(cold: World) -> None:
    partition = cold.table.find("cold", 0)
    reads, file = cold.fetch_api.cold_reads, partition.log.state.segments[0].file
    for position in range(3 * RANGES_PER_PARTITION_MAX):
        assert not reads.bring_in(partition, NotCachedError(file, position, 1))
    assert reads.range_count == len(cold.ranges_due) == RANGES_PER_PARTITION_MAX


async def test_a_disk_failure_is_reported_by_the_waiting_fetch(cold: World) -> None:
    call = ask(cold, ("cold", 3))
    ((_, done),) = cold.ranges_due
    done(OSError(errno.EIO, "the disk fails as asked"))
    (part,) = parts(call)
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_log_that_was_cut_meanwhile_is_read_as_it_is_then(cold: World) -> None:
    call = ask(cold, ("cold", 3))
    await cold.table.find("cold", 0).log.truncate_fully_and_start_at(Offset(9))
    await settle(cold)
    (part,) = parts(call)
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.interpreted_only("sets a constant")
async def test_who_reads_a_cold_log_in_order_waits_but_once(
    cold: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_reads, "AHEAD_BYTES", 8_192)
    monkeypatch.setattr(segment, "COLD_BLOCK_BYTES", segment.WALK_BLOCK_BYTES)
    offset, waited = 0, []
    for _ in range(12):
        call = ask(cold, ("cold", offset))
        if not call.is_completed:
            waited.append(offset)
        await settle(cold)
        (part,) = parts(call)
        offset = max(header.end_offset for _, header in whole_batches(part.records))
    assert waited == [0]
    assert offset < COUNT - RECENT_BATCH_COUNT_MAX


async def test_one_random_read_brings_in_little_ahead_of_it(cold: World) -> None:
    call = ask(cold, ("cold", 3))
    await settle(cold)
    parts(call)
    readers = cold.fetch_api.cold_reads.readers
    assert all(
        reader.ahead_to <= reader.position + (1 << 20) + cold_reads.AHEAD_BYTES
        for each in readers.values()
        for reader in each
    )


@pytest.mark.interpreted_only("sets a constant")
@pytest.mark.parametrize("bytes_max", [1_000, 6_000])
async def test_who_reads_on_to_the_end_waits_but_once_and_is_followed_no_longer(
    cold: World, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    monkeypatch.setattr(cold_reads, "AHEAD_BYTES", 8_192)
    monkeypatch.setattr(segment, "COLD_BLOCK_BYTES", segment.WALK_BLOCK_BYTES)
    reads = cold.fetch_api.cold_reads
    offset = waited = 0
    while offset < COUNT:
        call = ask(cold, ("cold", offset), bytes_max=bytes_max)
        waited += not call.is_completed
        await settle(cold)
        (part,) = parts(call)
        offset = max(header.end_offset for _, header in whole_batches(part.records))
    assert waited == 1
    assert not reads.readers
    assert reads.range_count == 0


async def test_a_cold_read_lets_few_records_of_other_partitions_be_copied(cold: World) -> None:
    ask(cold, ("cold", 3))
    assert cold.fetch_api.cold_reads.readers
    cold.table.find("hot", 0).append(
        cold.batch(b"news"), acks=1, now_ms=cold.clock.wall_ms(), mono_ms=1_000
    )
    call = ask(cold, ("hot", COUNT))
    (part,) = parts(call)
    assert part.records
    assert not any(isinstance(chunk, FileSlice) for chunk in call.slot.chunks), "they are copied"


async def test_readers_that_are_followed_are_bounded(cold: World) -> None:
    partition = cold.table.find("cold", 0)
    reads, file = cold.fetch_api.cold_reads, partition.log.state.segments[0].file
    for position in range(0, 100 * cold_reads.READERS_PER_FILE_MAX, 100):
        reads.bring_in(partition, NotCachedError(file, position, 1))
        cold.ranges_due.pop()[1](None)
    assert len(reads.readers[file.path]) == cold_reads.READERS_PER_FILE_MAX
    newest = max(reader.position for reader in reads.readers[file.path])
    assert newest == 100 * cold_reads.READERS_PER_FILE_MAX - 100


async def test_without_a_worker_nothing_is_said_of_the_disk(cold: World) -> None:
    """As while the broker ends: a directory that failed then would not be closed cleanly."""
    reads = ReadAheads(cold.disk, UnexpectedErrors())
    call = ask(cold, ("cold", 3))
    ((piece, done),) = cold.ranges_due
    assert not reads.bring_in(piece, done)
    assert not call.is_completed
    assert cold.table.find("cold", 0).log.failure is None
    assert cold.fetch_api.cold_reads.range_count == 0


async def test_a_range_whose_task_is_cancelled_or_fails_oddly_may_be_asked_for_again(
    cold: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_ahead(*_: object) -> None:
        raise RuntimeError("no thread can be started")

    errors = UnexpectedErrors()
    monkeypatch.setattr(cold.disk, "read_ahead", read_ahead)
    reads = ReadAheads(cold.disk, errors)
    ask(cold, ("cold", 3))
    ((piece, done),) = cold.ranges_due
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reads.run)
        await trio.testing.wait_all_tasks_blocked()
        reads.bring_in(piece, done)
        await trio.testing.wait_all_tasks_blocked()
        assert cold.fetch_api.cold_reads.range_count == 0
        nursery.cancel_scope.cancel()
    assert cold.table.find("cold", 0).log.failure is None
