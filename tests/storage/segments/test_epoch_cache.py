"""The start offset of each leader epoch, by which followers truncate (KIP-101, KIP-279)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.storage.segments.epoch_cache import EpochCache, decode_epochs


def entries_of(cache: EpochCache) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in cache.entries]


def cache_of(*entries: tuple[int, int]) -> EpochCache:
    cache = EpochCache()
    for epoch, start_offset in entries:
        cache.assign(Epoch(epoch), Offset(start_offset))
    return cache


@pytest.mark.parametrize(
    ("asked", "epoch", "end_offset"),
    [(-1, -1, -1), (1, 1, 10), (2, 2, 20), (3, 2, 20), (5, 5, 30), (7, 7, 99), (8, -1, -1)],
)
def test_an_epoch_ends_where_the_next_known_one_begins(
    asked: int, epoch: int, end_offset: int
) -> None:
    cache = cache_of((2, 10), (5, 20), (7, 30))

    found = cache.end_offset_for(Epoch(asked), Offset(99))

    assert found == OffsetAndEpoch(Offset(end_offset), Epoch(epoch))


def test_a_start_once_given_stays() -> None:
    cache = cache_of((2, 10), (2, 15), (1, 20))
    assert entries_of(cache) == [(2, 10)]


def test_leaderships_that_wrote_nothing_give_way_to_the_next() -> None:
    cache = cache_of((2, 10), (3, 20), (4, 20), (6, 20))
    assert entries_of(cache) == [(2, 10), (6, 20)]


def test_the_oldest_epoch_follows_the_log_start() -> None:
    cache = cache_of((2, 10), (5, 20), (7, 30))
    cache.truncate_from_start(Offset(25))
    assert entries_of(cache) == [(5, 25), (7, 30)]
    cache.truncate_from_start(Offset(30))
    assert entries_of(cache) == [(7, 30)]
    cache.truncate_from_start(Offset(12))
    assert entries_of(cache) == [(7, 30)]


def test_epochs_at_or_after_the_end_are_forgotten() -> None:
    cache = cache_of((2, 10), (5, 20), (7, 30))
    cache.truncate_from_end(Offset(20))
    assert entries_of(cache) == [(2, 10)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 100)), max_size=20))
def test_whatever_is_assigned_the_lineage_increases_and_survives_its_file(
    entries: list[tuple[int, int]],
) -> None:
    cache = cache_of(*entries)

    assert decode_epochs(cache.encode()).entries == cache.entries
    for offset in range(0, 101, 7):
        older = [entry.epoch for entry in cache.entries if entry.start_offset <= offset]
        assert cache.epoch_of(Offset(offset)) == max(older, default=-1)
