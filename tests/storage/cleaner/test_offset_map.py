"""The offset maps against a dictionary, and against Kafka's table where they should agree."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError
from ottla.storage.cleaner.array_offset_map import LONG_BYTES, ArrayOffsetMap, KeyHasher
from ottla.storage.cleaner.offset_map import (
    NOT_FOUND,
    SLOT_BYTES,
    OffsetMap,
    SlotTable,
    key_count_max,
    keyed_digest,
    md5_digest,
)

SEED = 0x5EED


def slot_table(memory_bytes: int, load_factor: float) -> OffsetMap:
    return SlotTable(memory_bytes, load_factor, keyed_digest(SEED))


def kafkas_table(memory_bytes: int, load_factor: float) -> OffsetMap:
    return SlotTable(memory_bytes, load_factor, md5_digest)


def array_map(memory_bytes: int, load_factor: float) -> ArrayOffsetMap:
    return ArrayOffsetMap(memory_bytes, load_factor, KeyHasher(SEED), 1 << 30)


MAPS: list[Callable[[int, float], OffsetMap]] = [slot_table, kafkas_table, array_map]
KEYS = st.one_of(st.binary(max_size=12), st.integers(0, 20).map(lambda size: b"\0" * size))


@pytest.mark.parametrize("new_map", MAPS)
@given(
    entries=st.lists(st.tuples(KEYS, st.integers(0, 1 << 40)), max_size=60),
    others=st.lists(KEYS, max_size=10),
)
def test_a_map_holds_the_largest_offset_of_each_key(
    new_map: Callable[[int, float], OffsetMap],
    entries: list[tuple[bytes, int]],
    others: list[bytes],
) -> None:
    offset_map = new_map(70 * SLOT_BYTES, 0.9)
    model: dict[bytes, int] = {}
    for key, offset in entries:
        offset_map.put(key, offset)
        model[key] = max(offset, model.get(key, -1))
    assert offset_map.count == len(model)
    for key in [*model, *others]:
        assert offset_map.offset_of(key) == model.get(key, NOT_FOUND)


@pytest.mark.parametrize("new_map", MAPS)
def test_a_map_takes_as_many_keys_as_kafkas_and_finds_them_all(
    new_map: Callable[[int, float], OffsetMap],
) -> None:
    offset_map = new_map(500 * SLOT_BYTES + 7, 0.9)
    assert offset_map.count_max == 450
    for number in range(450):
        offset_map.put(b"%d" % number, number)
    assert offset_map.count == 450
    assert [offset_map.offset_of(b"%d" % number) for number in range(450)] == list(range(450))
    assert offset_map.offset_of(b"another") == NOT_FOUND


def test_a_full_map_keeps_one_slot_empty() -> None:
    assert key_count_max(10 * SLOT_BYTES, 1.5) == 9
    with pytest.raises(CorruptDataError, match="takes no key"):
        key_count_max(2 * SLOT_BYTES - 1, 0.9)
    offset_map = array_map(10 * SLOT_BYTES, 1.0)
    for number in range(9):
        offset_map.put(b"%d" % number, number)
    assert [offset_map.offset_of(b"%d" % number) for number in range(10)] == [*range(9), NOT_FOUND]


@given(runs=st.lists(st.lists(KEYS, min_size=1, max_size=30), max_size=6), slot_count=st.just(400))
def test_keys_put_together_are_keys_put_one_by_one(
    runs: list[list[bytes]], slot_count: int
) -> None:
    offset_map = array_map(slot_count * SLOT_BYTES, 0.9)
    hasher = KeyHasher(SEED)
    model: dict[bytes, int] = {}
    offset = 0
    for run in runs:
        sizes = np.array([len(key) for key in run], dtype=np.int64)
        at = np.cumsum(sizes) - sizes
        offsets = np.arange(offset, offset + len(run))
        offset += len(run)
        hashes = hasher.of_keys(b"".join(run), at, sizes)
        offset_map.put_all(hashes, offsets)
        model.update(zip(run, offsets.tolist(), strict=True))
        assert offset_map.offsets_of(hashes).tolist() == [model[key] for key in run]
    assert offset_map.count == len(model)


@given(keys=st.lists(st.binary(max_size=LONG_BYTES + 40), min_size=1, max_size=20, unique=True))
def test_a_keys_hash_depends_on_all_its_bytes_and_no_others(keys: list[bytes]) -> None:
    hasher = KeyHasher(SEED)
    sizes = np.array([len(key) for key in keys], dtype=np.int64)
    data = b"#".join(keys)
    at = np.cumsum(sizes + 1) - sizes - 1
    together = hasher.of_keys(data, at, sizes)
    found = set()
    for row, key in enumerate(keys):
        alone = hasher.of_keys(key, np.zeros(1, dtype=np.int64), sizes[row : row + 1])
        assert (alone.first[0], alone.second[0]) == (together.first[row], together.second[row])
        found.add((int(alone.first[0]), int(alone.second[0])))
    assert len(found) == len(keys)


def test_another_seed_gives_other_hashes() -> None:
    one, sizes = np.zeros(1, dtype=np.int64), np.array([3], dtype=np.int64)
    hashes = [KeyHasher(seed).of_keys(b"key", one, sizes) for seed in (1, 2)]
    assert hashes[0].first[0] != hashes[1].first[0]
    assert hashes[0].second[0] != hashes[1].second[0]
    assert keyed_digest(1)(b"key") != keyed_digest(2)(b"key")
