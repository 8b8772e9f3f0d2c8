"""Leader epochs of a log beside those of copied segments."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ottla.model.ids import NO_EPOCH, Epoch, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.lineage import Lineage, epochs_with_records
from ottla.storage.tier.remote_segment import RemoteSegment
from tests.storage.tier.tier_examples import entries, lineage, remote

LOG = {2: 0, 5: 10, 7: 15, 9: 100}


@pytest.mark.parametrize(
    ("segment", "is_contained"),
    [
        (remote(1, 10, 50, {5: 10, 7: 15}), True),
        (remote(1, 12, 50, {5: 12, 7: 15}), True),
        (remote(1, 15, 99, {7: 15}), True),
        (remote(1, 15, 100, {7: 15}), False),  # ends after the epoch's end in the log
        (remote(1, 10, 50, {6: 10, 7: 15}), False),  # an epoch that the log has not
        (remote(1, 10, 50, {5: 10, 7: 16}), False),  # an epoch that begins elsewhere
        (remote(1, 10, 50, {5: 10}), False),  # an epoch is missing
        (remote(1, 8, 50, {5: 8, 7: 15}), False),  # begins before the epoch's start in the log
        (remote(1, 100, 119, {9: 100}), True),
        (remote(1, 100, 120, {9: 100}), False),  # ends after the log
        (remote(1, 100, 110, {11: 100}), False),  # of a later leader
        (remote(1, 10, 50, {5: 10, 6: 15, 7: 15}), True),  # an epoch without records
    ],
)
def test_a_segment_of_the_lineage_has_the_epochs_of_the_log(
    segment: RemoteSegment, is_contained: bool
) -> None:
    assert lineage(LOG, end=120).contains(segment) is is_contained


def test_epochs_of_the_log_without_records_are_dropped_first() -> None:
    assert lineage({5: 10, 6: 15, 7: 15}, end=60).contains(remote(1, 10, 50, {5: 10, 7: 15}))


def test_a_segment_from_before_the_log_start_counts_by_its_rest() -> None:
    """Kafka's example: the cache was cut to (7, 51), (9, 100) by the new log start."""
    cut = lineage({7: 51, 9: 100}, start=51, end=200)
    assert cut.contains(remote(1, 14, 150, {5: 14, 7: 15, 9: 100}))
    assert not cut.contains(remote(1, 14, 150, {5: 14, 8: 15, 9: 100}))


def test_a_segment_below_the_log_start_is_in_no_lineage() -> None:
    assert not lineage({7: 51}, start=51, end=200).contains(remote(1, 0, 50, {7: 0}))


def test_reading_ends_where_the_segment_leaves_the_lineage() -> None:
    log = lineage({1: 0, 3: 80}, end=120)
    abandoned = remote(1, 0, 99, {1: 0, 2: 90})
    assert log.shared_end_offset(abandoned, Offset(10)) == 80
    assert log.shared_end_offset(abandoned, Offset(85)) == 85
    same = remote(2, 0, 99, {1: 0, 3: 80})
    assert log.shared_end_offset(same, Offset(10)) == 100


def _epochs(starts: list[int], steps: list[int]) -> tuple[EpochEntry, ...]:
    epoch, found = 0, []
    for start, step in zip(sorted(starts), steps, strict=False):
        epoch += step
        found.append(EpochEntry(Epoch(epoch), Offset(start)))
    return tuple(found)


epochs = st.builds(
    _epochs,
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.lists(st.integers(1, 2), min_size=4, max_size=4),
)


def _naive_epoch(at: tuple[EpochEntry, ...], offset: int) -> int:
    return max((one.epoch for one in at if one.start_offset <= offset), default=NO_EPOCH)


@given(epochs, epochs, st.integers(0, 10), st.integers(0, 10), st.integers(0, 4), st.integers(0, 9))
def test_the_test_agrees_with_comparing_each_record(
    log: tuple[EpochEntry, ...],
    theirs: tuple[EpochEntry, ...],
    start: int,
    length: int,
    log_start: int,
    log_length: int,
) -> None:
    end, log_end = start + length, log_start + log_length + 4
    mine = epochs_with_records(theirs, start_offset=Offset(start), end_offset=Offset(end + 1))
    assume(mine)
    segment = remote(1, start, end, {one.epoch: one.start_offset for one in mine})
    ours = Lineage(log, start_offset=Offset(log_start), end_offset=Offset(log_end))
    offsets = range(max(start, log_start), end + 1)
    expected = (
        bool(offsets)
        and end < log_end
        and all(_naive_epoch(log, one) == _naive_epoch(mine, one) for one in offsets)
    )
    assert ours.contains(segment) == expected
    for offset in range(log_start, log_end):
        assert ours.epoch_of(Offset(offset)) == _naive_epoch(log, offset)
        shared = ours.shared_end_offset(segment, Offset(offset))
        naive = offset
        while (
            start <= naive <= end
            and naive < log_end
            and _naive_epoch(log, naive) == _naive_epoch(mine, naive) != NO_EPOCH
        ):
            naive += 1
        if start <= offset:
            assert shared == naive


def test_the_first_epoch_begins_at_the_start_of_the_range() -> None:
    found = epochs_with_records(entries(LOG), start_offset=Offset(12), end_offset=Offset(100))
    assert found == entries({5: 12, 7: 15})
