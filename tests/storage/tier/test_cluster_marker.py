"""A prefix of an object store belongs to one cluster."""

import pytest

from ottla.model.errors import CorruptDataError
from ottla.storage.tier.cluster_marker import (
    MARKER_BYTES_MAX,
    MARKER_KEY,
    claim_prefix,
    decode_cluster_marker,
    encode_cluster_marker,
)
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.store_seam import StoreRefusedError

OURS = "rVyN6nEfTFCY4mGkyA7S8w"
OTHER = "AAAAAAAAAAAAAAAAAAAAAQ"


def test_a_marker_is_read_back() -> None:
    assert encode_cluster_marker(OURS) == b'{"format": 1, "cluster_id": "rVyN6nEfTFCY4mGkyA7S8w"}'
    assert decode_cluster_marker(encode_cluster_marker(OURS)) == OURS


async def test_a_cluster_claims_its_prefix_again() -> None:
    store = MemoryObjectStore()
    for _ in range(3):
        await claim_prefix(store, OURS)
    assert [entry.key async for entry in store.entries("")] == [MARKER_KEY]


async def test_a_second_cluster_is_refused_by_name_of_both() -> None:
    store = MemoryObjectStore()
    await claim_prefix(store, OURS)
    with pytest.raises(StoreRefusedError, match=f"{OURS}.*{OTHER}.*prefix of its own"):
        await claim_prefix(store, OTHER)
    await claim_prefix(store, OURS)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"[" * 100_000,
        b'{"format": 1}',
        b'{"format": 2, "cluster_id": "a"}',
        b'{"format": 1, "cluster_id": 5}',
        b'{"format": 1, "cluster_id": "../a"}',
        b'{"format": 1, "cluster_id": ""}',
        b'{"format": 1, "cluster_id": "a", "x": "' + b"x" * MARKER_BYTES_MAX + b'"}',
    ],
)
async def test_an_unknown_object_in_its_place_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_cluster_marker(content)
    if content:  # an empty object cannot be read by a range
        store = MemoryObjectStore()
        await store.put(MARKER_KEY, content)
        with pytest.raises(StoreRefusedError, match="unknown object"):
            await claim_prefix(store, OURS)
