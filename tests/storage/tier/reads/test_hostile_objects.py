"""Objects that someone else wrote into the bucket, with right sizes and CRCs: a read ends with
StoreError or with some bytes within its bounds, after a bounded time."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from struct import Struct

import pytest
import trio

from ottla.model.ids import Offset
from ottla.storage.tier.manifest import (
    CHUNK_BYTES,
    IndexKind,
    IndexSection,
    SegmentManifest,
    encode_manifest,
)
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.object_names import SegmentObject
from ottla.storage.tier.reads.reader_limits import BATCH_BYTES_MAX
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.storage.tier.segment_upload_driver import upload_segment
from ottla.storage.tier.store_seam import StoreError
from ottla.wire.crc import crc32c
from tests.storage.tier.reads.reader_bench import END, TOPIC, opened_reader, read
from tests.storage.tier.segment_in_memory import segment_in_memory, upload_of
from tests.storage.tier.test_segment_upload import LARGE

SOURCE = segment_in_memory(1200, {4: 1200}, [(1, 20)] * 200 + [(2, 5_000)] * 150)
SECTIONS_OF_ENTRIES = (IndexKind.OFFSETS, IndexKind.TIMES)
POSITION = Struct(">i")


async def forged(
    store: MemoryObjectStore, log: bytes, sections: dict[IndexKind, bytes]
) -> RemoteSegment:
    """Store a segment with other records and indexes, whose checks are all right."""
    manifest = await upload_segment(MemoryObjectStore(), SOURCE, upload_of())
    sections[IndexKind.CHECKSUMS] = b"".join(
        crc32c(log[at : at + CHUNK_BYTES]).to_bytes(4, "big")
        for at in range(0, len(log), CHUNK_BYTES)
    )
    placed, indexes = [], b""
    for kind in IndexKind:
        if kind in sections:
            end = len(indexes) + len(sections[kind])
            placed.append(IndexSection(kind, len(indexes), end, crc32c(sections[kind])))
            indexes += sections[kind]
    manifest = replace(
        manifest,
        size_bytes=len(log),
        log_crc=crc32c(log),
        index_sections=tuple(placed),
        has_empty_transaction_index=IndexKind.TRANSACTIONS not in sections,
    )
    await _store(store, manifest, log, indexes)
    return manifest.remote_segment


async def _store(
    store: MemoryObjectStore, manifest: SegmentManifest, log: bytes, indexes: bytes
) -> None:
    await store.put(manifest.names.key(SegmentObject.LOG), log)
    await store.put(manifest.names.key(SegmentObject.INDEXES), indexes)
    await store.put(manifest.names.key(SegmentObject.MANIFEST), encode_manifest(manifest))


async def _sections() -> dict[IndexKind, bytes]:
    return {
        IndexKind.OFFSETS: SOURCE.offsets,
        IndexKind.TIMES: SOURCE.times,
        IndexKind.PRODUCERS: await SOURCE.producer_snapshot(),
        IndexKind.EPOCHS: b"0\n1\n4 1200\n",
    }


def _changed(rng: random.Random, data: bytes, count: int) -> bytes:
    changed = bytearray(data)
    for _ in range(count):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


async def _is_bounded(call: Callable[[], Awaitable[object]]) -> None:
    with trio.fail_after(120):
        try:
            await call()
        except StoreError as error:
            assert len(str(error)) < 500


@pytest.mark.parametrize("seed", range(20))
async def test_a_forged_segment_is_read_within_bounds_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    sections = await _sections()
    log = SOURCE.log
    match seed % 4:
        case 0:  # headers of some batches
            changed = bytearray(log)
            for _, _, position, _ in rng.sample(SOURCE.batches, 30):
                changed[position + rng.randrange(61)] = rng.randrange(256)
            log = bytes(changed)
        case 1:
            for kind in SECTIONS_OF_ENTRIES:
                sections[kind] = _changed(rng, sections[kind], 30)
        case 2:
            log = rng.randbytes(len(log))
        case 3:
            for kind in SECTIONS_OF_ENTRIES:
                sections[kind] = rng.randbytes(len(sections[kind]))
            sections[IndexKind.TRANSACTIONS] = rng.randbytes(34 * 300)
            sections[IndexKind.EPOCHS] = rng.randbytes(50)
            sections[IndexKind.PRODUCERS] = b""
    store = MemoryObjectStore()
    segment = await forged(store, log, sections)
    async with opened_reader(store) as reader:
        for offset in rng.choices(range(1200, int(segment.end_offset) + 1), k=15):
            at = Offset(offset)

            async def read_some(at: Offset = at) -> None:
                found = await read(reader, segment, at, bytes_max=10_000)
                assert len(found.records) <= len(log)

            await _is_bounded(read_some)
            for call in (
                lambda at=at: reader.offset_for_timestamp(
                    TOPIC, segment, 1_000_000 + at, start_offset=at, end_offset=END
                ),
                lambda at=at: reader.aborted(TOPIC, segment, at, END),
                lambda: reader.epochs(TOPIC, segment),
                lambda: reader.producer_snapshot(TOPIC, segment),
            ):
                await _is_bounded(call)


async def test_a_claimed_batch_of_gigabytes_is_not_read() -> None:
    log = bytearray(LARGE.log[: LARGE.batches[300][2]])
    log += b"\0" * (BATCH_BYTES_MAX + 2 - len(log) % 2)
    log[8:12] = POSITION.pack(len(log) - 12)
    store = MemoryObjectStore()
    segment = await forged(store, bytes(log), await _sections())
    async with opened_reader(store) as reader:
        with pytest.raises(StoreError, match="a batch has"):
            await read(reader, segment, 1200)
        assert reader.counts.fetched_bytes < 20 << 20


async def test_an_index_without_entries_is_only_slow() -> None:
    store = MemoryObjectStore()
    segment = await forged(
        store, SOURCE.log, {**await _sections(), IndexKind.OFFSETS: b"", IndexKind.TIMES: b""}
    )
    async with opened_reader(store) as reader:
        found = await read(reader, segment, segment.end_offset)
        assert found.records == SOURCE.log[SOURCE.batches[-1][2] :]
