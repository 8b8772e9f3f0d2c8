"""Fetched bytes with gaps, aborted transactions and damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.fetch.fetched import FetchedRecords
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, ProducerId, TopicPartition
from ottla.wire.batch import TimestampType
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from ottla.wire.compression import Codec
from tests.storage.cleaner.cleaning_bench import compacted_batch

AT = TopicPartition("t", 3)
EPOCH = Epoch(4)


def batch(base: int, count: int = 3, *, producer: int = -1, codec: Codec = Codec.NONE) -> bytes:
    """Return records with their offsets as values."""
    return build_batch(
        [(1_000 + base + n, None, b"%d" % (base + n)) for n in range(count)],
        base_offset=Offset(base),
        leader_epoch=EPOCH,
        producer_id=ProducerId(producer),
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=base if producer >= 0 else -1,
        is_transactional=producer >= 0,
        codec=codec,
    )


def marker(offset: int, producer: int, control_type: ControlType) -> bytes:
    return build_end_transaction_marker(
        control_type,
        timestamp_ms=1,
        producer_id=ProducerId(producer),
        producer_epoch=0,
        coordinator_epoch=Epoch(0),
        base_offset=Offset(offset),
        leader_epoch=EPOCH,
    )


def fetched(
    *batches: bytes, offset: int = 0, aborted: list[tuple[int, int]] | None = None
) -> FetchedRecords:
    return FetchedRecords(
        AT,
        Offset(offset),
        Epoch(-1),
        b"".join(batches),
        aborted=None if aborted is None else [(p, Offset(first)) for p, first in aborted],
    )


def values(records: list[ConsumerRecord]) -> list[int]:
    assert all(int(record.value or b"") == record.offset for record in records)
    return [record.offset for record in records]


def test_a_record_says_where_it_was() -> None:
    (record,) = fetched(batch(7, 1)).take(10)

    assert record == ConsumerRecord(
        "t", 3, Offset(7), 1_007, None, b"7", (), EPOCH, TimestampType.CREATE_TIME
    )


@given(st.lists(st.integers(1, 4), max_size=8), st.sampled_from(Codec))
def test_however_it_is_taken_every_record_comes_once(counts: list[int], codec: Codec) -> None:
    held = fetched(batch(0, 5, codec=codec), batch(5, 1), batch(6, 4, codec=codec))
    taken: list[int] = []
    for count in counts:
        assert held.offset == len(taken)
        taken += values(held.take(count))
    taken += values(held.take(100))

    assert taken == list(range(10))
    assert held.is_drained
    assert (held.offset, held.epoch) == (10, EPOCH)


def test_what_lies_before_the_position_is_stepped_over() -> None:
    held = fetched(batch(0), batch(3), offset=4)

    assert values(held.take(10)) == [4, 5]


def test_a_batch_that_the_answer_cut_off_is_left_for_the_next() -> None:
    held = fetched(batch(0), batch(3)[:-1])

    assert held.end_offset == 3
    assert values(held.take(10)) == [0, 1, 2]
    assert held.is_drained


def test_offsets_that_compaction_took_are_stepped_over() -> None:
    held = fetched(batch(0, 2), batch(10, 2))

    assert values(held.take(10)) == [0, 1, 10, 11]
    assert held.offset == 12


@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batches_that_compaction_thinned_or_emptied_are_read_to_their_ends(
    count: int, codec: Codec
) -> None:
    held = fetched(
        compacted_batch(batch(0)),
        compacted_batch(batch(3, codec=codec), {4}, horizon_ms=5_000_000),
        compacted_batch(batch(6)),
        compacted_batch(batch(9, codec=codec), {9}),
        compacted_batch(batch(12)),
        offset=1,
    )

    taken = [record for _ in range(3) for record in held.take(count)]

    assert [(record.offset, record.timestamp_ms) for record in taken] == [(4, 1_004), (9, 1_009)]
    assert held.is_drained
    assert (held.offset, held.epoch) == (15, EPOCH)


def test_control_batches_are_stepped_over() -> None:
    held = fetched(batch(0, producer=1), marker(3, 1, ControlType.COMMIT))

    assert values(held.take(10)) == [0, 1, 2]
    assert held.offset == 4


def test_read_committed_leaves_out_what_was_aborted_and_nothing_else() -> None:
    log = (
        batch(0, producer=1),
        batch(3, producer=2),
        batch(6),
        marker(9, 1, ControlType.ABORT),
        batch(10, producer=1),
        marker(13, 1, ControlType.COMMIT),
        marker(14, 2, ControlType.COMMIT),
    )

    assert values(fetched(*log, aborted=[(1, 0)]).take(100)) == [3, 4, 5, 6, 7, 8, 10, 11, 12]
    assert len(fetched(*log, aborted=None).take(100)) == 12


def test_an_answer_that_begins_with_the_marker_leaves_out_nothing_behind_it() -> None:
    log = (
        marker(9, 1, ControlType.ABORT),
        batch(10, producer=1),
        marker(13, 1, ControlType.COMMIT),
    )

    assert values(fetched(*log, offset=9, aborted=[(1, 0)]).take(100)) == [10, 11, 12]


def test_damage_is_reported_once_what_comes_before_it_was_given_out() -> None:
    bad = bytearray(batch(3))
    bad[-1] ^= 1
    held = fetched(batch(0), bytes(bad), batch(6))

    assert values(held.take(10)) == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(CorruptDataError, match="t-3 at offset 3"):
            held.take(10)
    assert held.offset == 3


def test_unchecked_damage_goes_through() -> None:
    bad = bytearray(batch(0))
    bad[-2] ^= 1

    held = FetchedRecords(AT, Offset(0), EPOCH, bytes(bad), check_crcs=False)

    assert len(held.take(10)) == 3
