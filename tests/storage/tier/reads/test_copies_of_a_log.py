"""Copies of a log's segments are read as the log itself: records, aborted transactions, offsets by
time, and the state that a replica begins with."""

import random
from collections.abc import Iterator
from functools import partial

import pytest

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import Offset
from ottla.storage.log.log import Log
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.tier.copy_plan import CopyLag, segments_to_copy
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.reads.remote_reader_driver import RemoteReader
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.storage.tier.segment_upload_driver import upload_segment
from ottla.storage.tier.store_seam import ObjectStore
from ottla.wire.batch_builder import build_batch
from ottla.wire.compression import Codec
from tests.storage.log.test_transactions_model import Life
from tests.storage.log.workbench import NOW_MS, Workbench, append
from tests.storage.tier.reads.reader_bench import TOPIC, opened_reader, read, read_all
from tests.storage.tier.segment_in_memory import upload_of


@pytest.fixture
def bench() -> Iterator[Workbench]:
    bench = Workbench(SimulatedDisk(SeededRng(1)), "/data/orders-2")
    yield bench
    bench.let_go()


async def _copied(log: Log, store: ObjectStore) -> list[RemoteSegment]:
    """Copy all closed segments of a log below its last stable offset."""
    due = segments_to_copy(
        log.local_segments(),
        log.epochs(),
        copied_offset=Offset(-1),
        log_start_offset=log.log_start_offset,
        last_stable_offset=log.last_stable_offset,
        lag=CopyLag(),
        now_ms=NOW_MS,
    )
    return [
        (
            await upload_segment(store, log.segment_source(local.base_offset), upload_of(number))
        ).remote_segment
        for number, local in enumerate(due, 1)
    ]


async def _aborted(
    reader: RemoteReader, segments: list[RemoteSegment], offset: int, end_offset: int
) -> set[tuple[int, Offset]]:
    """Return the aborted transactions of a range, as a broker collects them from segments."""
    found: set[tuple[int, Offset]] = set()
    for segment in segments:
        if segment.end_offset < offset:
            continue
        part = await reader.aborted(TOPIC, segment, Offset(offset), Offset(end_offset))
        found |= {(each.producer_id, each.first_offset) for each in part.transactions}
        if part.is_complete:
            break
    return found


@pytest.mark.parametrize("seed", range(2))
async def test_records_and_aborted_transactions_are_those_of_the_log(
    bench: Workbench, seed: int
) -> None:
    life = Life(bench, seed)
    log = await bench.open(LogConfig(segment_bytes=2_000, index_interval_bytes=200))
    for _ in range(250):
        log = await life.step(log)
    store = MemoryObjectStore()
    segments = await _copied(log, store)
    assert len(segments) > 3
    async with opened_reader(store) as reader:
        for segment in segments:
            found = await read_all(reader, segment, bytes_max=random.Random(seed).randint(1, 900))
            local = waited_for(
                partial(
                    log.read,
                    segment.start_offset,
                    bytes_max=1 << 20,
                    end_offset=Offset(segment.end_offset + 1),
                    at_least_one=True,
                )
            )
            assert local.slice is not None
            assert found == bytes_of(local.slice)
        end = segments[-1].end_offset + 1
        for offset in range(0, end, 7):
            # The marker of a transaction may be in a later segment that is not copied.
            for end_offset in (offset + 1, offset + 30):
                remote = await _aborted(reader, segments, offset, min(end_offset, end))
                look_up = partial(
                    log.aborted_transactions, Offset(offset), Offset(min(end_offset, end))
                )
                local_found = waited_for(look_up)
                assert remote <= set(local_found)
                later = {each for each in local_found if each not in remote}
                assert all(
                    each.marker_offset is not None and each.marker_offset >= end
                    for each in life.transactions
                    if (each.producer_id, each.first_offset) in later
                )


@pytest.mark.parametrize("seed", range(2))
async def test_offsets_by_time_are_those_of_the_log(bench: Workbench, seed: int) -> None:
    rng = random.Random(seed)
    log = await bench.open(LogConfig(segment_bytes=6_000, index_interval_bytes=300))
    epoch = 0
    for at in range(300):
        epoch += rng.random() < 0.02
        records = [
            (at * 10 + rng.randint(-40, 40), b"k", rng.randbytes(rng.randint(0, 90)))
            for _ in range(rng.randint(1, 5))
        ]
        codec = rng.choice([Codec.NONE, Codec.GZIP])
        append(log, build_batch(records, codec=codec), leader_epoch=epoch)
    log.update_high_watermark(log.end_offset)
    store = MemoryObjectStore()
    segments = await _copied(log, store)
    end_offset = Offset(segments[-1].end_offset + 1)
    lineage = Lineage(log.epochs(), start_offset=Offset(0), end_offset=log.end_offset)
    assert len(segments) > 3
    assert all(lineage.contains(segment) for segment in segments)
    async with opened_reader(store) as reader:
        for timestamp_ms in range(-50, 3100, 37):
            expected = await log.offset_for_timestamp(timestamp_ms, end_offset)
            found = None
            for segment in segments:
                found = found or await reader.offset_for_timestamp(
                    TOPIC, segment, timestamp_ms, start_offset=Offset(0), end_offset=end_offset
                )
            assert found == expected


async def test_a_replica_begins_with_the_state_of_a_copy(bench: Workbench) -> None:
    life = Life(bench, 5)
    log = await bench.open(LogConfig(segment_bytes=2_000, index_interval_bytes=200))
    for _ in range(250):
        log = await life.step(log)
    store = MemoryObjectStore()
    segments = await _copied(log, store)
    last = segments[-1]
    end_offset = Offset(last.end_offset + 1)
    other = Workbench(SimulatedDisk(SeededRng(1)), "/data/orders-2")
    replica = await other.open(LogConfig(is_tiered=True))
    async with opened_reader(store) as reader:
        await replica.begin_at(
            end_offset,
            log_start_offset=Offset(0),
            epochs=await reader.epochs(TOPIC, last),
            producer_snapshot=await reader.producer_snapshot(TOPIC, last),
            now_ms=NOW_MS,
        )
        assert (replica.log_start_offset, replica.end_offset) == (0, end_offset)
        assert list(replica.epochs()) == [
            entry for entry in log.epochs() if entry.start_offset < end_offset
        ]
        await log.truncate_to(end_offset)
        mine, its = (
            {
                producer_id: (producer.epoch, producer.txn_first_offset)
                for producer_id, producer in each.active_producers.items()
            }
            for each in (replica, log)
        )
        assert mine == its
        found = await read(reader, last, last.end_offset)
        assert found.end_offset == end_offset
    other.let_go()
