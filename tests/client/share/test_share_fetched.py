"""Acquired records of a response: gaps, damage, and data that is missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.share.share_fetched import LockedOffsets, ShareFetched
from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.ids import Epoch, Offset, ProducerId, TopicPartition
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from ottla.wire.compression import Codec
from tests.storage.cleaner.cleaning_bench import compacted_batch

AT = TopicPartition("t", 3)


def batch(base: int, count: int, codec: Codec = Codec.NONE) -> bytes:
    """Return records with their offsets as values."""
    return build_batch(
        [(1_000, None, b"%d" % (base + n)) for n in range(count)],
        base_offset=Offset(base),
        leader_epoch=Epoch(4),
        codec=codec,
    )


def marker(offset: int) -> bytes:
    return build_end_transaction_marker(
        ControlType.COMMIT,
        timestamp_ms=1,
        producer_id=ProducerId(9),
        producer_epoch=0,
        coordinator_epoch=Epoch(0),
        base_offset=Offset(offset),
        leader_epoch=Epoch(4),
    )


def fetched(data: bytes, *ranges: tuple[int, int, int]) -> ShareFetched:
    return ShareFetched(AT, data, [LockedOffsets(*one) for one in ranges])


def expanded(ranges: list[tuple[int, int]]) -> list[int]:
    return [offset for first, last in ranges for offset in range(first, last + 1)]


def all_of(one: ShareFetched, count: int) -> tuple[dict[int, int], list[int], list[int]]:
    """Return the delivery count of each record, the gaps, and the missing offsets."""
    found: dict[int, int] = {}
    gaps: list[int] = []
    missing: list[int] = []
    while not one.is_drained:
        taken = one.take(count)
        gaps += expanded(taken.gaps)
        missing += expanded(taken.missing)
        if taken.records is not None:
            assert 0 < len(taken.records) <= count
            assert [int(value or b"") for value in taken.records.values] == [*taken.records.offsets]
            found |= dict.fromkeys(taken.records.offsets, taken.delivery_count)
    return found, gaps, missing


def test_only_acquired_records_of_a_batch_are_returned() -> None:
    one = fetched(batch(10, 10), (12, 13, 1), (14, 14, 3), (18, 19, 1))
    assert all_of(one, 100) == ({12: 1, 13: 1, 14: 3, 18: 1, 19: 1}, [], [])


def test_control_records_and_offsets_without_a_record_are_gaps() -> None:
    data = batch(0, 2) + marker(2) + compacted_batch(batch(3, 7), (4, 7)) + batch(10, 1)
    found, gaps, missing = all_of(fetched(data, (0, 10, 1)), 3)
    assert list(found) == [0, 1, 4, 7, 10]
    assert (gaps, missing) == ([2, 3, 5, 6, 8, 9], [])


def test_a_response_of_control_records_alone_is_all_gaps() -> None:
    assert all_of(fetched(marker(2), (2, 2, 1)), 5) == ({}, [2], [])


def test_offsets_behind_the_data_are_missing_and_no_gaps() -> None:
    """A gap is archived and never read again, so only an offset that was seen may be one."""
    found, gaps, missing = all_of(fetched(batch(0, 3), (1, 5, 1), (7, 7, 2)), 10)
    assert (list(found), gaps, missing) == ([1, 2], [], [3, 4, 5, 7])


@given(
    st.sets(st.integers(0, 60), min_size=1),
    st.integers(1, 70),
    st.sampled_from([Codec.NONE, Codec.GZIP]),
    st.integers(1, 12),
)
def test_every_acquired_offset_is_returned_once(
    acquired: set[int], count: int, codec: Codec, per_batch: int
) -> None:
    data = b"".join(batch(base, per_batch, codec) for base in range(0, 61, per_batch))
    ranges = [(one, one, 1 + one % 3) for one in sorted(acquired)]
    found, gaps, missing = all_of(fetched(data, *ranges), count)
    assert found == {one: 1 + one % 3 for one in acquired}
    assert not gaps and not missing


@pytest.mark.parametrize(
    "ranges",
    [[(5, 4, 1)], [(3, 5, 1), (5, 6, 1)], [(-2, 3, 1)], [(0, 2_000_000, 1)], [(0, 2**62, 1)]],
)
def test_impossible_ranges_are_refused(ranges: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ProtocolError, match="t"):
        fetched(batch(0, 1), *ranges)


def test_records_before_a_corrupt_batch_come_first_then_an_error_with_its_offset() -> None:
    bad = bytearray(batch(3, 3))
    bad[-1] ^= 1
    one = fetched(batch(0, 3) + bytes(bad) + batch(6, 2), (1, 4, 1), (5, 7, 1))
    taken = one.take(10)
    assert taken.records is not None and [*taken.records.offsets] == [1, 2]
    with pytest.raises(CorruptDataError, match="t-3 at offset 3"):
        one.take(10)
    corrupt, behind = one.skip_corrupt()
    assert (expanded(corrupt), expanded(behind)) == ([3, 4, 5], [6, 7])
    assert one.is_drained
