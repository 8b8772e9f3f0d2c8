"""Reads of copied segments are those of the local segments, whatever the store does."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.object_store import SimulatedObjectStore, StoreFaults, StoreOperation
from ottla.model.ids import Epoch, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.segments.transaction_index import AbortedTransaction
from ottla.storage.tier.manifest import CHUNK_BYTES
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.reads.reader_limits import READ_BYTES_MAX, RUN_CHUNKS
from ottla.storage.tier.reads.requests_driver import CorruptObjectError
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.storage.tier.store_seam import ObjectNotFoundError, StoreError
from tests.storage.tier.reads.reader_bench import (
    END,
    TOPIC,
    model_read,
    opened_reader,
    read,
    read_all,
    simulated_disk,
    simulated_store,
    uploaded,
)
from tests.storage.tier.segment_in_memory import SegmentInMemory, segment_in_memory

ABORTS = (
    AbortedTransaction(7, Offset(1210), Offset(1220), Offset(1215)),
    AbortedTransaction(8, Offset(1215), Offset(1300), Offset(1250)),
    AbortedTransaction(7, Offset(1400), Offset(1410), Offset(1405)),
)
SOURCE = segment_in_memory(
    1200,
    {2: 0, 4: 1200, 6: 1500},
    [(1, 20)] * 300 + [(2, 30_000)] * 60 + [(1, CHUNK_BYTES + 5)] + [(3, 100)] * 200,
    aborts=ABORTS,
)
assert SOURCE.size_bytes > 4 * CHUNK_BYTES


def _check(source: SegmentInMemory, found: Any, *arguments: Any) -> None:
    offset = arguments[0]
    expected = model_read(source, *arguments)
    assert found.records == expected
    if expected:
        assert found.end_offset > offset


@pytest.mark.parametrize("bytes_max", [0, 1, 100, 5000, CHUNK_BYTES, READ_BYTES_MAX])
async def test_a_read_returns_the_batches_of_the_segment(
    bytes_max: int, autojump_clock: MockClock
) -> None:
    store = MemoryObjectStore()
    segment = await uploaded(store, SOURCE)
    async with opened_reader(store) as reader:
        for offset in [1200, 1201, 1224, *range(1498, 1504), *range(1618, 1626), 1700, 2220]:
            for end_offset in (END, offset + 1, offset + 30):
                for at_least_one in (False, True):
                    found = await read(
                        reader,
                        segment,
                        offset,
                        end_offset=end_offset,
                        bytes_max=bytes_max,
                        at_least_one=at_least_one,
                    )
                    _check(SOURCE, found, offset, end_offset, bytes_max, at_least_one)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9000)), min_size=1, max_size=60),
    st.integers(0, 2),
    st.data(),
)
@settings(max_examples=25, deadline=None)
def test_a_read_of_any_segment_is_that_of_the_model(
    batches: Sequence[tuple[int, int]], gap: int, data: st.DataObject
) -> None:
    source = segment_in_memory(50, {0: 50}, batches, gap=gap)

    async def check() -> None:
        store = MemoryObjectStore()
        segment = await uploaded(store, source)
        async with opened_reader(store) as reader:
            for _ in range(10):
                offset = data.draw(st.integers(50, source.end_offset - 1))
                end_offset = offset + data.draw(st.integers(1, 20))
                bytes_max = data.draw(st.integers(0, 40_000))
                found = await read(
                    reader, segment, offset, end_offset=end_offset, bytes_max=bytes_max
                )
                _check(source, found, offset, end_offset, bytes_max, True)
            assert await read_all(reader, segment, bytes_max=bytes_max) == source.log

    trio.run(check)


async def test_a_read_behind_the_last_record_reaches_the_end() -> None:
    """Compaction may have removed the last records of a segment."""
    source = segment_in_memory(50, {0: 50}, [(1, 20)] * 3, gap=5)
    store = MemoryObjectStore()
    segment = await uploaded(store, source)
    async with opened_reader(store) as reader:
        assert await read(reader, segment, source.end_offset - 1) == (b"", source.end_offset)


async def test_aborted_transactions_and_the_state_of_a_replica() -> None:
    store = MemoryObjectStore()
    segment = await uploaded(store, SOURCE)
    async with opened_reader(store) as reader:

        async def aborted(start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
            return await reader.aborted(TOPIC, segment, Offset(start), Offset(end))

        assert await aborted(1200, 1211) == ([ABORTS[0]], True)
        assert await aborted(1221, 1240) == ([ABORTS[1]], True)
        assert await aborted(1200, 1406) == (list(ABORTS), False)
        assert await aborted(1500, 1600) == ([], False)
        assert await reader.producer_snapshot(TOPIC, segment) == await SOURCE.producer_snapshot()
        assert await reader.epochs(TOPIC, segment) == tuple(SOURCE.epochs)


async def test_offsets_by_time() -> None:
    source = segment_in_memory(
        1200, {4: 1200}, [(3, 300)] * 400, timestamp_of=lambda offset: offset // 10 * 10 % 1700
    )
    store = MemoryObjectStore()
    segment = await uploaded(store, source)
    async with opened_reader(store) as reader:

        async def first(timestamp_ms: int, start: int = 1200, end: int = END) -> int | None:
            found = await reader.offset_for_timestamp(
                TOPIC, segment, timestamp_ms, start_offset=Offset(start), end_offset=Offset(end)
            )
            assert found is None or found.leader_epoch == 4
            return None if found is None else found.offset

        for timestamp_ms in (0, 1200, 1201, 1210, 1500, 1685, 1690):
            for start in (1200, 1201, 1688, 1750, 2000):
                for end in (END, 1300, 1800):
                    expected = next(
                        (
                            offset
                            for offset in range(start, min(end, source.end_offset))
                            if offset // 10 * 10 % 1700 >= timestamp_ms
                        ),
                        None,
                    )
                    assert await first(timestamp_ms, start, end) == expected
        assert await first(1691) is None


# Caches and requests.


async def test_many_readers_of_a_chunk_cause_one_request(autojump_clock: MockClock) -> None:
    store = simulated_store()
    segment = await uploaded(store, SOURCE)
    store.requests.clear()
    async with opened_reader(store) as reader:
        async with trio.open_nursery() as nursery:
            for offset in range(1200, 1250):
                nursery.start_soon(read, reader, segment, offset)
        # The manifest, the checksums, the offset index, and two chunks with one request or two.
        assert store.requests[StoreOperation.GET] <= 5


async def test_a_cancelled_read_is_finished_for_the_next_attempt(
    autojump_clock: MockClock,
) -> None:
    """A consumer whose every attempt ends after 500 ms must move (KIP-1018)."""
    store = simulated_store(faults=StoreFaults(latency_s=(0.3, 0.4)))
    segment = await uploaded(store, SOURCE)
    store.requests.clear()
    attempts = 0
    records = None
    async with opened_reader(store) as reader:
        while records is None:
            attempts += 1
            with trio.move_on_after(0.5):
                records = (await read(reader, segment, 1500)).records
        assert attempts < 10
        assert store.requests[StoreOperation.GET] <= 5
    assert records == model_read(SOURCE, 1500, END, 1 << 20, True)


async def test_a_second_read_needs_no_request_even_after_a_restart(
    autojump_clock: MockClock,
) -> None:
    store, disk = simulated_store(), simulated_disk()
    segment = await uploaded(store, SOURCE)
    async with opened_reader(store, disk) as reader:
        assert await read_all(reader, segment) == SOURCE.log
        count = store.requests[StoreOperation.GET]
        assert await read_all(reader, segment) == SOURCE.log
        await trio.sleep(1)
    assert store.requests[StoreOperation.GET] == count
    async with opened_reader(store, disk) as reader:
        assert await read_all(reader, segment) == SOURCE.log
        chunk_count = -(-SOURCE.size_bytes // CHUNK_BYTES)
        assert reader.counts.file_hits == chunk_count
        (family,) = reader.counts.families()
        assert {sample[0][0]: sample[1] for sample in family.samples if sample} == {
            "memory": reader.counts.memory_hits,
            "file": chunk_count,
            "store": 0,
        }
    assert store.requests[StoreOperation.GET] == count


async def test_damaged_files_of_the_cache_are_fetched_again(autojump_clock: MockClock) -> None:
    store, disk = simulated_store(), simulated_disk()
    segment = await uploaded(store, SOURCE)
    async with opened_reader(store, disk) as reader:
        assert await read_all(reader, segment) == SOURCE.log
        await trio.sleep(1)
    for folder in ("indexes", "chunks"):
        for name in await disk.listdir(f"/data/tier-cache/{folder}"):
            disk.open(f"/data/tier-cache/{folder}/{name}").pwrite(3, [b"\xff\xff"])
    async with opened_reader(store, disk) as reader:
        assert await read_all(reader, segment) == SOURCE.log
        assert reader.counts.file_hits == 0


async def test_a_full_disk_does_not_prevent_reads(autojump_clock: MockClock) -> None:
    store, disk = simulated_store(), simulated_disk()
    disk.capacity_bytes = 1000
    segment = await uploaded(store, SOURCE)
    async with opened_reader(store, disk) as reader:
        assert await read_all(reader, segment) == SOURCE.log


async def test_the_cache_shrinks_when_the_volume_is_nearly_full(
    autojump_clock: MockClock,
) -> None:
    store, disk = simulated_store(), simulated_disk()
    segments = [await uploaded(store, SOURCE, number) for number in (1, 2)]
    async with opened_reader(store, disk, chunk_memory_bytes=2 * CHUNK_BYTES) as reader:
        await read_all(reader, segments[0])
        await trio.sleep(1)
        before = await disk.listdir("/data/tier-cache/chunks")
        disk.capacity_bytes = disk.used_bytes * 100 // 99
        assert await read_all(reader, segments[1]) == SOURCE.log
        await trio.sleep(1)
        after = await disk.listdir("/data/tier-cache/chunks")
        assert len(after) < len(before)
        assert await read_all(reader, segments[0]) == SOURCE.log


async def test_chunks_in_files_are_read_ahead_into_memory(autojump_clock: MockClock) -> None:
    store, disk = simulated_store(), simulated_disk()
    segment = await uploaded(store, SOURCE)
    async with opened_reader(store, disk) as reader:
        await read_all(reader, segment)
        await trio.sleep(1)
    async with opened_reader(store, disk) as reader:
        for offset in (1200, 1201):
            await read(reader, segment, offset, bytes_max=1)
        await trio.sleep(1)
        assert reader.memory_bytes > 3 * CHUNK_BYTES
        assert reader.counts.gets == 0


async def test_memory_and_files_stay_within_their_bounds(autojump_clock: MockClock) -> None:
    store, disk = simulated_store(), simulated_disk()
    segments = [await uploaded(store, SOURCE, number) for number in range(1, 9)]
    limits = {"chunk_memory_bytes": 6 * CHUNK_BYTES, "chunk_file_bytes": 9 * CHUNK_BYTES}
    async with opened_reader(store, disk, **limits) as reader:

        async def check(segment: RemoteSegment) -> None:
            assert await read_all(reader, segment, bytes_max=200_000) == SOURCE.log
            assert reader.memory_bytes <= limits["chunk_memory_bytes"]

        async with trio.open_nursery() as nursery:
            for segment in segments:
                nursery.start_soon(check, segment)
        await trio.sleep(1)
        names = await disk.listdir("/data/tier-cache/chunks")
        sizes = [disk.open(f"/data/tier-cache/chunks/{name}").size_bytes for name in names]
        assert 0 < sum(sizes) <= limits["chunk_file_bytes"]


async def test_a_smaller_cache_of_indexes_removes_files_at_once(autojump_clock: MockClock) -> None:
    store, disk = simulated_store(), simulated_disk()
    segments = [await uploaded(store, SOURCE, number) for number in (1, 2, 3)]

    async def cached() -> list[int]:
        names = await disk.listdir("/data/tier-cache/indexes")
        return [disk.open(f"/data/tier-cache/indexes/{name}").size_bytes for name in names]

    async with opened_reader(store, disk) as reader:
        for segment in segments:
            await read_all(reader, segment)
        await trio.sleep(1)
        sizes = await cached()
        bytes_max = sum(sizes) - 1
        reader.set_index_file_bytes(bytes_max)
        await trio.sleep(1)
        assert 0 < sum(await cached()) <= bytes_max
        reader.set_index_file_bytes(1)
        await trio.sleep(1)
        assert await cached() == []
        assert await read_all(reader, segments[0]) == SOURCE.log


async def test_requests_of_many_readers_are_bounded(autojump_clock: MockClock) -> None:
    """Many partitions at once must not fill the memory (KAFKA-19763)."""

    class Meter(SimulatedObjectStore):
        running_bytes = most_bytes = running = most = 0

        async def get(self, key: str, start: int, end: int) -> bytes:
            size = min(end - start, SOURCE.size_bytes)
            self.running, self.running_bytes = self.running + 1, self.running_bytes + size
            self.most = max(self.most, self.running)
            self.most_bytes = max(self.most_bytes, self.running_bytes)
            try:
                return await super().get(key, start, end)
            finally:
                self.running, self.running_bytes = self.running - 1, self.running_bytes - size

    store = Meter(Chance(0))
    segments = [await uploaded(store, SOURCE, number) for number in range(1, 13)]
    async with opened_reader(store, None, gets_at_once=6) as reader:
        async with trio.open_nursery() as nursery:
            for segment in segments:
                nursery.start_soon(partial(read, reader, segment, 1200, bytes_max=1 << 30))
        assert store.most == 6
        assert store.most_bytes <= 6 * RUN_CHUNKS * CHUNK_BYTES

    store.most = 0
    async with opened_reader(store, None, gets_at_once=6) as reader:
        reader.set_gets_at_once(2)
        async with trio.open_nursery() as nursery:
            for segment in segments:
                nursery.start_soon(partial(read, reader, segment, 1200, bytes_max=1 << 30))
        assert store.most == 2


async def test_segments_that_are_forgotten_leave_no_files(autojump_clock: MockClock) -> None:
    store, disk = simulated_store(), simulated_disk()
    segments = [await uploaded(store, SOURCE, number) for number in (1, 2)]
    async with opened_reader(store, disk) as reader:
        for segment in segments:
            await read_all(reader, segment)
        await trio.sleep(1)
        await reader.forget(segments[0].id)
        for folder in ("indexes", "chunks"):
            names = await disk.listdir(f"/data/tier-cache/{folder}")
            assert names
            assert all(name.startswith(f"{segments[1].id.segment_id}.") for name in names)


async def test_a_sequential_reader_has_the_bandwidth_of_the_store(
    autojump_clock: MockClock,
) -> None:
    """Also across segments. Without read-ahead it waits for each response."""
    bandwidth = 100e6
    sources = [
        segment_in_memory(base, {0: base}, [(1, 65_000)] * 256) for base in (0, 256, 512, 768)
    ]

    async def ratio(**limits: int) -> float:
        store = simulated_store(faults=StoreFaults(latency_s=(0.015, 0.025), bytes_per_s=bandwidth))
        segments = [await uploaded(store, source, at) for at, source in enumerate(sources, 1)]
        async with opened_reader(store, None, chunk_file_bytes=0, **limits) as reader:
            began_at = trio.current_time()
            for at, segment in enumerate(segments):
                following = segments[at + 1] if at + 1 < len(segments) else None
                assert await read_all(reader, segment, following=following) == sources[at].log
            took_s = trio.current_time() - began_at
        return sum(source.size_bytes for source in sources) / took_s / bandwidth

    assert await ratio() > 0.6
    assert await ratio(read_ahead_bytes=0) < 0.5


# A store that fails.


@pytest.mark.parametrize("seed", range(8))
async def test_reads_survive_failures_and_lost_responses(
    seed: int, autojump_clock: MockClock
) -> None:
    store = simulated_store(seed)
    segment = await uploaded(store, SOURCE)
    store.faults.failed = store.faults.lost_response = 0.15
    async with opened_reader(store) as reader:
        for offset in range(1200, 1560, 7):
            try:
                found = await read(reader, segment, offset)
            except StoreError:
                continue
            _check(SOURCE, found, offset, END, 1 << 20, True)
        store.faults.end()
        assert await read_all(reader, segment) == SOURCE.log


async def test_a_store_that_hangs_costs_a_deadline_and_nothing_else(
    autojump_clock: MockClock,
) -> None:
    store = simulated_store()
    segment = await uploaded(store, SOURCE)
    async with opened_reader(store, request_timeout_s=5) as reader:
        store.hang()
        began_at = trio.current_time()
        with pytest.raises(StoreError, match="did not answer within 5 s"):
            await read(reader, segment, 1200)
        assert trio.current_time() - began_at < 20
        store.resume()
        assert await read_all(reader, segment) == SOURCE.log


async def test_closing_a_reader_ends_its_loads(autojump_clock: MockClock) -> None:
    store = simulated_store()
    segment = await uploaded(store, SOURCE)
    with trio.fail_after(1):
        async with opened_reader(store) as reader:
            store.hang()
            with trio.move_on_after(0.1):
                await read(reader, segment, 1200)


async def test_objects_that_are_gone_are_reported_as_missing(autojump_clock: MockClock) -> None:
    for suffix in (".manifest.json", ".indexes", ".log"):
        store = simulated_store()
        segment = await uploaded(store, SOURCE)
        await store.delete([key for key in store.objects if key.endswith(suffix)])
        async with opened_reader(store) as reader:
            with pytest.raises(ObjectNotFoundError):
                await read(reader, segment, 1200)


async def test_one_partition_of_a_damaged_object_does_not_disturb_others(
    autojump_clock: MockClock,
) -> None:
    store = simulated_store()
    damaged = await uploaded(store, SOURCE, 1)
    whole = await uploaded(store, SOURCE, 2)
    for key, content in store.objects.items():
        if key.endswith(".log") and str(damaged.start_offset) in key:
            await store.put(key, content[: CHUNK_BYTES // 2])
            break
    async with opened_reader(store) as reader:
        results = [await _outcome(reader, segment) for segment in (damaged, whole)]
        assert sorted(results) == ["CorruptObjectError", "right"]


async def _outcome(reader: Any, segment: RemoteSegment) -> str:
    try:
        return "right" if await read_all(reader, segment) == SOURCE.log else "wrong"
    except StoreError as error:
        return type(error).__name__


@pytest.mark.parametrize(
    "change",
    [
        {"end_offset": Offset(5000)},
        {"size_bytes": 5},
        {"leader_epochs": (EpochEntry(Epoch(5), Offset(1200)),)},
        {"has_empty_transaction_index": True},
    ],
)
async def test_a_manifest_that_contradicts_the_metadata_is_refused(change: Any) -> None:
    store = MemoryObjectStore()
    segment = await uploaded(store, SOURCE)
    wrong = replace(segment, **change)
    async with opened_reader(store) as reader:
        with pytest.raises(CorruptObjectError, match="contradicts"):
            await read(reader, wrong, 1300)
