"""A bucket is read with bounds: a store that fails or hangs ends a command with one error, and
damaged objects are noticed."""

from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from ottla.model.errors import CorruptDataError
from ottla.storage.tier.bucket_driver import (
    log_ranges,
    read_index,
    read_manifests,
    read_owner,
    read_partition,
    scan_bucket,
)
from ottla.storage.tier.manifest import IndexKind, SegmentManifest
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.object_names import SegmentObject
from ottla.storage.tier.store_seam import StoreError, StoreRefusedError
from tests.storage.tier.example_bucket import CLUSTER_ID, ExampleTopic, fill_bucket

ONE_PARTITION = ExampleTopic(partition_count=1)


class FailingStore(MemoryObjectStore):
    """A store whose reads fail after some time, or never end."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self._hangs = hangs

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Fail, or wait permanently."""
        if self._hangs:
            await trio.sleep_forever()
        await trio.sleep(1)
        raise StoreError("the object store failed: 503")


async def filled(tmp_path: Path) -> tuple[MemoryObjectStore, list[SegmentManifest]]:
    store = MemoryObjectStore()
    return store, await fill_bucket(store, tmp_path, (ONE_PARTITION,))


@pytest.mark.parametrize(("hangs", "sentence"), [(False, "503"), (True, "did not respond")])
async def test_a_store_that_fails_ends_a_read_with_one_error(
    hangs: bool, sentence: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = FailingStore(hangs=hangs)
    await fill_bucket(store, tmp_path, (ONE_PARTITION,))
    scan = await scan_bucket(store, CLUSTER_ID)
    with pytest.raises(StoreError, match=sentence):
        await read_manifests(store, scan.segments)
    with pytest.raises(StoreError, match=sentence):
        await read_owner(store)


async def test_a_bucket_without_a_marker_has_no_owner() -> None:
    with pytest.raises(StoreRefusedError, match="no cluster has used this place"):
        await read_owner(MemoryObjectStore())


async def test_records_are_compared_with_the_manifest(tmp_path: Path) -> None:
    store, manifests = await filled(tmp_path)
    first = manifests[0]
    parts = [part async for part in log_ranges(store, first)]
    assert len(b"".join(parts)) == first.size_bytes
    with pytest.raises(CorruptDataError, match="does not match its CRC"):
        [part async for part in log_ranges(store, replace(first, log_crc=first.log_crc ^ 1))]
    longer = replace(first, size_bytes=first.size_bytes + 1)
    with pytest.raises(CorruptDataError, match="it has less than"):
        [part async for part in log_ranges(store, longer)]


async def test_a_section_of_the_indexes_is_compared_with_the_manifest(tmp_path: Path) -> None:
    store, manifests = await filled(tmp_path)
    first = manifests[0]
    section = first.section(IndexKind.EPOCHS)
    assert section is not None
    assert len(await read_index(store, first, IndexKind.EPOCHS)) == section.size_bytes
    assert await read_index(store, first, IndexKind.TRANSACTIONS) == b""
    key = first.names.key(SegmentObject.INDEXES)
    content = await store.get(key, 0, 1 << 20)
    await store.put(key, content[: section.start + 1])
    with pytest.raises(CorruptDataError, match="it ends within its section epochs"):
        await read_index(store, first, IndexKind.EPOCHS)


async def test_the_log_of_a_partition_is_all_that_was_uploaded(tmp_path: Path) -> None:
    store, manifests = await filled(tmp_path)
    stored = await read_partition(store, manifests)
    assert [one.manifest for one in stored.pieces] == manifests
    assert (stored.start_offset, stored.end_offset) == (0, manifests[-1].end_offset + 1)
    assert [int(entry.epoch) for entry in stored.epochs] == [3, 4, 5, 6]
