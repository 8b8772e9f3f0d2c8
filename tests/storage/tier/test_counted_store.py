"""A store whose requests are counted keeps the contract, and counts what a provider bills."""

import gc
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing

import pytest
from trio.testing import MockClock

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.object_store import SimulatedObjectStore, StoreFaults
from ottla.storage.tier.counted_store import CountedStore, RequestKind, StoreTraffic
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.segment_upload_driver import delete_segments, upload_segment
from ottla.storage.tier.store_seam import StoreError
from tests.storage.tier.reads.reader_bench import opened_reader, read_all
from tests.storage.tier.segment_in_memory import upload_of
from tests.storage.tier.store_conformance import CHECKS, Check
from tests.storage.tier.test_segment_upload import LARGE

PART_BYTES = 1 << 20


def _counted() -> tuple[CountedStore, StoreTraffic]:
    traffic = StoreTraffic()
    return CountedStore(MemoryObjectStore(), traffic, part_bytes=PART_BYTES), traffic


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_counted_store_keeps_the_contract(check: Check) -> None:
    await check(_counted()[0])


async def test_requests_and_bytes_of_a_segment_are_counted() -> None:
    store, traffic = _counted()
    manifest = await upload_segment(store, LARGE, upload_of())
    parts = -(-LARGE.size_bytes // PART_BYTES)
    assert traffic.requests == {RequestKind.PUT: parts + 2 + 2, RequestKind.HEAD: 2}
    stored = [entry.size_bytes async for entry in store.entries("")]
    assert traffic.sent_bytes == sum(stored)
    async with opened_reader(store) as reader:
        assert await read_all(reader, manifest.remote_segment) == LARGE.log
        assert traffic.requests[RequestKind.GET] == reader.counts.gets
        assert traffic.received_bytes == reader.counts.fetched_bytes
    await delete_segments(store, [manifest.names])
    assert traffic.requests[RequestKind.DELETE] == 2
    assert traffic.requests[RequestKind.LIST] == 1
    assert traffic.failed.total() == 0
    values = {
        (family.name, labels): value
        for family in traffic.families()
        for labels, value in (sample for sample in family.samples if sample is not None)
    }
    assert values["ottla_tier_store_requests_total", ("put",)] == parts + 4
    assert values["ottla_tier_store_bytes_total", ("sent",)] == traffic.sent_bytes


async def test_a_page_of_a_listing_and_a_batch_of_a_deletion_are_one_request() -> None:
    store, traffic = _counted()
    for at in range(2001):
        await store.put(f"a/{at}", b"")
    keys = [entry.key async for entry in store.entries("a/")]
    await store.delete(keys)
    assert traffic.requests[RequestKind.LIST] == 3
    assert traffic.requests[RequestKind.DELETE] == 3
    async for _ in store.entries("b/"):
        break
    assert traffic.requests[RequestKind.LIST] == 4


async def test_failed_calls_are_counted(autojump_clock: MockClock) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield bytes(PART_BYTES)
        yield b"x"

    traffic = StoreTraffic()
    faults = StoreFaults(is_down=True)
    store = CountedStore(SimulatedObjectStore(Chance(0), faults), traffic, part_bytes=PART_BYTES)
    for call in (store.put("a", b"x"), store.get("a", 0, 1), store.put_stream("a", parts())):
        with pytest.raises(StoreError):
            await call
    assert traffic.failed == {RequestKind.PUT: 2, RequestKind.GET: 1}
    assert traffic.received_bytes == 0


class _HalfReadingStore(MemoryObjectStore):
    """A store that fails after the first part of an object."""

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        async for _ in parts:
            raise StoreError("the store fails")


async def test_the_parts_of_a_failed_upload_are_closed_at_once() -> None:
    is_closed = False

    async def parts() -> AsyncGenerator[bytes, None]:
        nonlocal is_closed
        try:
            yield b"a"
            yield b"b"
        finally:
            is_closed = True

    store = CountedStore(_HalfReadingStore(), StoreTraffic(), part_bytes=PART_BYTES)
    with pytest.raises(StoreError):
        async with aclosing(parts()) as sent:
            await store.put_stream("a", sent)
    gc.collect()  # a generator that was left open would be reported here
    assert is_closed
