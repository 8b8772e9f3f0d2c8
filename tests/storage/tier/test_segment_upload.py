"""Uploads of segments: nothing looks complete that is not, and a damaged segment is refused."""

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.object_store import SimulatedObjectStore, StoreFaults
from ottla.model.ids import Epoch, Offset
from ottla.storage.segments.epoch_cache import EpochEntry, decode_epochs
from ottla.storage.segments.transaction_index import AbortedTransaction
from ottla.storage.tier.manifest import (
    CHUNK_BYTES,
    IndexKind,
    SegmentManifest,
    decode_manifest,
    problem_of,
)
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.object_names import SegmentNames, SegmentObject, parse_object_key
from ottla.storage.tier.segment_upload_driver import (
    SegmentFaultError,
    SegmentUpload,
    delete_segments,
    upload_segment,
)
from ottla.storage.tier.store_seam import ObjectStore, StoreError
from ottla.wire.crc import crc32c
from tests.storage.tier.segment_in_memory import SegmentInMemory, segment_in_memory, upload_of

LARGE = segment_in_memory(
    1200,
    {2: 0, 4: 1200, 6: 1500},
    [(1, 20)] * 300 + [(2, 30_000)] * 60,
    aborts=[AbortedTransaction(7, Offset(1210), Offset(1220), Offset(1230))],
)
SMALL = segment_in_memory(1200, {4: 1200}, [(1, 20)] * 3)
assert LARGE.size_bytes > 3 * CHUNK_BYTES


async def _content(store: ObjectStore, key: str) -> bytes:
    return await store.get(key, 0, 1 << 30)


async def _manifest(store: ObjectStore, names: SegmentNames) -> SegmentManifest:
    key = names.key(SegmentObject.MANIFEST)
    return decode_manifest(await _content(store, key), key)


async def test_the_objects_of_an_upload_are_the_segment() -> None:
    store = MemoryObjectStore()
    manifest = await upload_segment(store, LARGE, upload_of())
    assert problem_of(manifest) is None
    assert await _manifest(store, manifest.names) == manifest
    assert await _content(store, manifest.names.key(SegmentObject.LOG)) == LARGE.log
    assert manifest.log_crc == crc32c(LARGE.log)
    assert (manifest.start_offset, manifest.end_offset) == (1200, LARGE.end_offset - 1)
    assert manifest.leader_epochs == (
        EpochEntry(Epoch(4), Offset(1200)),
        EpochEntry(Epoch(6), Offset(1500)),
    )
    indexes = await _content(store, manifest.names.key(SegmentObject.INDEXES))
    sections = {
        section.kind: indexes[section.start : section.end] for section in manifest.index_sections
    }
    assert all(crc32c(sections[one.kind]) == one.crc for one in manifest.index_sections)
    assert sections[IndexKind.OFFSETS] == LARGE.offsets
    assert sections[IndexKind.TIMES] == LARGE.times
    assert sections[IndexKind.TRANSACTIONS] == LARGE.aborts
    assert sections[IndexKind.PRODUCERS] == await LARGE.producer_snapshot()
    assert decode_epochs(sections[IndexKind.EPOCHS]).entries == tuple(LARGE.epochs)
    assert sections[IndexKind.CHECKSUMS] == b"".join(
        crc32c(LARGE.log[at : at + CHUNK_BYTES]).to_bytes(4, "big")
        for at in range(0, LARGE.size_bytes, CHUNK_BYTES)
    )


async def test_a_segment_without_aborts_has_no_transaction_index() -> None:
    manifest = await upload_segment(MemoryObjectStore(), SMALL, upload_of())
    assert manifest.has_empty_transaction_index
    assert manifest.section(IndexKind.TRANSACTIONS) is None


async def test_an_upload_reads_each_byte_once_in_small_parts() -> None:
    source = replace(LARGE, reads=[])
    await upload_segment(MemoryObjectStore(), source, upload_of())
    assert max(end - start for start, end in source.reads) <= CHUNK_BYTES
    assert sum(end - start for start, end in source.reads) < 1.3 * source.size_bytes


async def test_an_upload_waits_for_its_throttle_before_it_sends(
    autojump_clock: MockClock,
) -> None:
    """The store receives nothing for which the throttle has not been asked."""
    asked = 0

    async def throttle(byte_count: int) -> None:
        nonlocal asked
        asked += byte_count

    class Meter(SimulatedObjectStore):
        async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
            sent = 0
            async for part in parts:
                sent += len(part)
                assert sent <= asked
            assert sent == LARGE.size_bytes

    with pytest.raises(StoreError):
        await upload_segment(Meter(Chance(0, replay=[])), LARGE, upload_of(), throttle=throttle)
    assert asked > LARGE.size_bytes


def _flipped(log: bytes, at: int) -> bytes:
    return log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]


DAMAGED: dict[str, tuple[SegmentInMemory, str]] = {
    "a changed record": (replace(LARGE, log=_flipped(LARGE.log, 2 * CHUNK_BYTES)), "CRC is wrong"),
    "a changed last byte": (replace(SMALL, log=_flipped(SMALL.log, -1 % SMALL.size_bytes)), "CRC"),
    "a cut batch": (replace(LARGE, log=LARGE.log[:-1]), "ends beyond the file"),
    "a cut header": (replace(SMALL, log=SMALL.log + SMALL.log[:30]), "30 bytes of its header"),
    "bytes behind the end": (replace(SMALL, log=SMALL.log + SMALL.log), "goes back"),
    "no bytes": (replace(SMALL, log=b""), "0 bytes"),
    "offsets beyond its end": (replace(SMALL, end_offset=Offset(1202)), "beyond its end"),
    "another start": (replace(SMALL, base_offset=Offset(1201)), "goes back"),
    "another epoch": (
        replace(LARGE, epochs=(EpochEntry(Epoch(5), Offset(1200)),)),
        "leader epoch 4 at offset 1200, but the log's leader epoch there is 5",
    ),
    "an epoch that begins too late": (
        replace(LARGE, epochs=(*LARGE.epochs[:2], EpochEntry(Epoch(6), Offset(1501)))),
        "leader epoch 6 at offset 1500",
    ),
    "no epochs": (replace(SMALL, epochs=()), "no leader epochs"),
    "a cut offset index": (replace(LARGE, offsets=LARGE.offsets[:-1]), "offsets"),
    "a cut time index": (replace(LARGE, times=LARGE.times[:-1]), "times"),
    "a cut transaction index": (replace(LARGE, aborts=LARGE.aborts[:-1]), "transactions"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
async def test_a_damaged_segment_is_refused_without_a_manifest(name: str) -> None:
    source, problem = DAMAGED[name]
    store = MemoryObjectStore()
    with pytest.raises(SegmentFaultError, match=problem):
        await upload_segment(store, source, upload_of())
    kinds = {parse_object_key(entry.key).kind async for entry in store.entries("")}  # type: ignore[union-attr]
    assert kinds <= {SegmentObject.LOG}


async def test_records_below_the_first_known_epoch_are_copied() -> None:
    source = replace(LARGE, epochs=LARGE.epochs[2:])
    manifest = await upload_segment(MemoryObjectStore(), source, upload_of())
    assert manifest.leader_epochs == (EpochEntry(Epoch(6), Offset(1500)),)


class LosingStore(SimulatedObjectStore):
    """A store whose objects of a kind vanish or are cut."""

    def __init__(self, suffix: str, kept_bytes: int | None) -> None:
        super().__init__(Chance(0, replay=[]))
        self._suffix, self._kept_bytes = suffix, kept_bytes

    def _set(self, key: str, content: bytes | None) -> None:
        if content is not None and key.endswith(self._suffix):
            content = None if self._kept_bytes is None else content[: self._kept_bytes]
        super()._set(key, content)


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
@pytest.mark.parametrize("kept_bytes", [None, 100])
async def test_an_object_that_is_not_whole_is_noticed_before_the_manifest(
    suffix: str, kept_bytes: int | None, autojump_clock: MockClock
) -> None:
    store = LosingStore(suffix, kept_bytes)
    with pytest.raises(StoreError, match=r"lost|has 100 bytes"):
        await upload_segment(store, LARGE, upload_of())
    assert not [entry async for entry in store.entries("") if entry.key.endswith(".json")]


async def test_a_deletion_removes_all_objects_and_can_be_repeated() -> None:
    store = MemoryObjectStore()
    names = [
        (await upload_segment(store, SMALL, upload_of(number))).names for number in range(1, 500)
    ]
    kept = await upload_segment(store, SMALL, upload_of(1000))
    for _ in range(2):
        await delete_segments(store, names)
        left = [entry.key async for entry in store.entries("")]
        assert sorted(left) == sorted(kept.names.keys())


# Under failures.


async def _is_whole(store: SimulatedObjectStore) -> bool:
    """Return whether each manifest in the store has its other objects, unchanged."""
    objects = store.objects
    for key, content in objects.items():
        name = parse_object_key(key)
        assert name is not None
        if name.kind is SegmentObject.MANIFEST:
            manifest = decode_manifest(content, key)
            log = objects.get(manifest.names.key(SegmentObject.LOG))
            indexes = objects.get(manifest.names.key(SegmentObject.INDEXES))
            if log is None or crc32c(log) != manifest.log_crc:
                return False
            if indexes is None or len(indexes) != manifest.indexes_size_bytes:
                return False
    return True


class Uploader(Protocol):
    """An upload, or one with a planted bug."""

    async def __call__(
        self, store: ObjectStore, source: SegmentInMemory, upload: SegmentUpload
    ) -> SegmentManifest: ...


Deleter = Callable[[ObjectStore, Sequence[SegmentNames]], Awaitable[None]]


async def _walk(
    seed: int, upload: Uploader = upload_segment, delete: Deleter = delete_segments, late: float = 0
) -> None:
    """Upload a segment to a store that fails, abandon uploads at any time, and clean up."""
    chance = Chance(seed)
    store = SimulatedObjectStore(
        chance,
        StoreFaults(failed=0.05, lost_response=0.1, late=late, late_s=20, partial_delete=0.3),
    )
    begun: list[SegmentNames] = []
    finished: SegmentManifest | None = None
    while finished is None and len(begun) < 100:
        begun.append(upload_of(len(begun) + 1).names(LARGE.base_offset))
        with trio.move_on_after([1000, 0.3, 1, 3][chance.below(4)]):
            with suppress(StoreError):
                finished = await upload(store, LARGE, upload_of(len(begun)))
        assert late or await _is_whole(store)
        if finished is not None and len(begun) < 4:
            finished = None  # it expires
        for _ in range(0 if finished else chance.below(3)):
            with trio.move_on_after([1000, 0.1][chance.below(2)]):
                with suppress(StoreError):
                    await delete(store, [begun[-1]])
            assert late or await _is_whole(store)
    assert finished is not None
    # Late effects of failed calls must not harm the finished upload, and are cleaned up later.
    store.faults.end()
    await trio.sleep(60)
    await delete(store, begun[:-1])
    assert sorted(store.objects) == sorted(finished.names.keys())
    assert await _is_whole(store)


@pytest.mark.parametrize("late", [0, 0.1])
@pytest.mark.parametrize("seed", range(8))
async def test_a_manifest_never_stands_for_a_part_of_a_segment(
    seed: int, late: float, autojump_clock: MockClock
) -> None:
    await _walk(seed, late=late)


async def _upload_manifest_first(
    store: ObjectStore, source: SegmentInMemory, upload: SegmentUpload
) -> SegmentManifest:
    whole = MemoryObjectStore()
    manifest = await upload_segment(whole, source, upload)
    for kind in reversed(SegmentObject):
        key = manifest.names.key(kind)
        await store.put(key, await _content(whole, key))
    return manifest


async def _delete_manifest_last(store: ObjectStore, segments: Sequence[SegmentNames]) -> None:
    for names in segments:
        await store.delete(names.keys())


async def _delete_all_at_once(store: ObjectStore, segments: Sequence[SegmentNames]) -> None:
    await store.delete([key for names in segments for key in sorted(names.keys())])


async def _upload_under_one_id(
    store: ObjectStore, source: SegmentInMemory, upload: SegmentUpload
) -> SegmentManifest:
    """Attempts that share their keys: the deletion of one removes the objects of the other."""
    return await upload_segment(store, source, upload_of(1))


async def _finds_bug(walk: Callable[[int], Awaitable[None]]) -> bool:
    for seed in range(40):
        try:
            await walk(seed)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("bug", [_upload_manifest_first, _upload_under_one_id])
async def test_a_planted_bug_of_uploads_is_found(bug: Uploader, autojump_clock: MockClock) -> None:
    assert await _finds_bug(lambda seed: _walk(seed, upload=bug))


@pytest.mark.parametrize("bug", [_delete_manifest_last, _delete_all_at_once])
async def test_a_planted_bug_of_deletions_is_found(bug: Deleter, autojump_clock: MockClock) -> None:
    assert await _finds_bug(lambda seed: _walk(seed, delete=bug))
