"""Look-ups, states and displaced segments of one partition's copied segments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import Epoch, Offset
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import (
    RemoteRecord,
    RemoteSegment,
    RemoteSegmentRemoval,
    RemoteSegmentState,
    RemoteSegmentUpdate,
    fault_of,
)
from tests.storage.tier.tier_examples import (
    DELETED,
    DELETING,
    FINISHED,
    STARTED,
    add,
    metadata_of,
    number_of,
    remote,
    segment_id,
    update,
)


def found(metadata: RemoteMetadata, epoch: int, offset: int) -> int | None:
    return number_of(metadata.find(Epoch(epoch), Offset(offset)))


def test_a_segment_is_read_only_between_the_end_of_its_copy_and_its_deletion() -> None:
    metadata = RemoteMetadata()
    seen = []
    records: tuple[RemoteRecord, ...] = (
        remote(1, 0, 99),
        update(1, FINISHED),
        update(1, DELETING),
        update(1, DELETED),
    )
    for record in records:
        assert metadata.apply(record) is None
        seen.append((found(metadata, 0, 50), len(metadata.segments_of(Epoch(0)))))
    assert seen == [(None, 1), (1, 1), (None, 1), (None, 0)]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([update(1, FINISHED)], "is unknown"),
        ([RemoteSegmentRemoval(segment_id(1))], "is unknown"),
        ([remote(1, 0, 9), remote(1, 0, 9)], "is already COPY_STARTED"),
        ([remote(1, 0, 9), update(1, DELETED)], "from COPY_STARTED to DELETE_FINISHED"),
        ([remote(1, 0, 9), update(1, STARTED)], "from COPY_STARTED to COPY_STARTED"),
        (
            [remote(1, 0, 9), update(1, FINISHED), update(1, FINISHED)],
            "from COPY_FINISHED to COPY_FINISHED",
        ),
        (
            [remote(1, 0, 9), update(1, DELETING), update(1, FINISHED)],
            "from DELETE_STARTED to COPY_FINISHED",
        ),
        (
            [remote(1, 0, 9), update(1, FINISHED), RemoteSegmentRemoval(segment_id(1))],
            "from COPY_FINISHED to DELETE_FINISHED",
        ),
        ([update(1, FINISHED).applied_to(remote(1, 0, 9))], "begins as COPY_FINISHED"),
        ([remote(1, 9, 0)], "is impossible"),
    ],
)
def test_an_illegal_record_is_refused_with_its_reason_and_changes_nothing(
    records: list[RemoteRecord], reason: str
) -> None:
    metadata = RemoteMetadata()
    for record in records[:-1]:
        assert metadata.apply(record) is None
    before = list(metadata.all_segments())
    refusal = metadata.apply(records[-1])
    assert refusal is not None and reason in refusal
    assert list(metadata.all_segments()) == before


@pytest.mark.parametrize(
    ("segment", "reason"),
    [
        (remote(1, 10, 19, {3: 10, 4: 12}), None),
        (remote(1, 10, 19, {3: 10, 4: 10}), None),
        (remote(1, 10, 19, {3: 12}), None),
        (remote(1, 10, 19, {3: 9}), "before the segment"),
        (remote(1, 10, 19, {3: 10, 4: 20}), "after the segment"),
        (remote(1, 10, 19, {4: 10, 3: 12}), "does not follow"),
        (remote(1, 10, 19, {3: 15, 4: 12}), "does not follow"),
        (remote(1, 10, 19, {-1: 10}), "first leader epoch is -1"),
        (remote(1, -1, 19), "offsets are"),
        (remote(1, 0, 19, size=-1), "size is"),
    ],
)
def test_impossible_segments_are_recognised(segment: RemoteSegment, reason: str | None) -> None:
    fault = fault_of(segment)
    assert (fault is None) if reason is None else (fault is not None and reason in fault)


def test_an_update_keeps_the_custom_metadata_unless_it_has_new_ones() -> None:
    metadata = RemoteMetadata()
    metadata.apply(remote(1, 0, 9))
    metadata.apply(update(1, FINISHED, custom_metadata=b"key"))
    metadata.apply(update(1, DELETING))
    kept = metadata.get(segment_id(1))
    assert kept is not None and kept.custom_metadata == b"key" and kept.state is DELETING


def test_a_look_up_is_by_leader_epoch_and_offset() -> None:
    metadata = metadata_of(remote(1, 0, 99, {1: 0, 3: 60}), remote(2, 100, 199, {3: 100}))
    assert [found(metadata, 1, offset) for offset in (0, 59, 60, 99)] == [1, 1, None, None]
    assert [found(metadata, 3, offset) for offset in (59, 60, 99, 100, 199, 200)] == [
        None, 1, 1, 2, 2, None,
    ]  # fmt: skip
    assert found(metadata, 2, 60) is None
    assert metadata.highest_offset(Epoch(1)) == 59
    assert metadata.highest_offset(Epoch(3)) == 199
    assert metadata.highest_offset(Epoch(2)) is None


def test_an_epoch_without_records_in_a_segment_finds_nothing() -> None:
    metadata = metadata_of(remote(1, 0, 99, {1: 0, 2: 60, 3: 60}))
    assert found(metadata, 2, 60) is None
    assert metadata.highest_offset(Epoch(2)) is None
    assert found(metadata, 3, 60) == 1


def test_a_larger_later_segment_displaces_smaller_ones_which_stay_listed() -> None:
    metadata = metadata_of(remote(1, 10, 90), remote(2, 5, 100), remote(3, 101, 200))
    assert [found(metadata, 0, offset) for offset in (5, 10, 90, 95, 101)] == [2, 2, 2, 2, 3]
    assert [number_of(one) for one in metadata.segments_of(Epoch(0))] == [2, 1, 3]


def test_of_equal_segments_the_later_one_is_read() -> None:
    metadata = metadata_of(remote(1, 0, 9), remote(2, 0, 9))
    assert found(metadata, 0, 5) == 2
    assert len(metadata.segments_of(Epoch(0))) == 2


def test_a_later_segment_that_is_covered_is_displaced_at_once() -> None:
    metadata = metadata_of(remote(1, 0, 100), remote(2, 0, 50), remote(3, 50, 100))
    assert {found(metadata, 0, offset) for offset in (0, 50, 75, 100)} == {1}
    assert metadata.highest_offset(Epoch(0)) == 100


def test_a_displaced_segment_is_read_again_after_its_cover_is_deleted() -> None:
    metadata = metadata_of(remote(1, 0, 50), remote(2, 51, 100), remote(3, 0, 100))
    metadata.apply(update(3, DELETING))
    assert [found(metadata, 0, offset) for offset in (50, 51, 100, 101)] == [1, 2, 2, None]


def test_a_failed_copy_that_is_deleted_was_never_readable() -> None:
    metadata = metadata_of(remote(1, 0, 50))
    metadata.apply(remote(2, 0, 100))
    metadata.apply(update(2, DELETING))
    assert found(metadata, 0, 20) == 1
    assert metadata.highest_offset(Epoch(0)) == 50


def test_the_next_transaction_index_is_in_the_epoch_and_without_holes() -> None:
    metadata = metadata_of(
        remote(1, 0, 9),
        remote(2, 10, 19),
        remote(3, 20, 29, has_empty_transaction_index=False),
        remote(4, 40, 49, has_empty_transaction_index=False),
    )
    at = metadata.next_with_transaction_index
    assert [number_of(at(Epoch(0), Offset(offset))) for offset in (0, 25, 30, 40)] == [
        3, 3, None, 4,
    ]  # fmt: skip


segments = st.builds(
    lambda start, length, cut: (start, start + length, cut),
    st.integers(0, 20),
    st.integers(0, 12),
    st.integers(0, 12),
)


def _segment(number: int, start: int, end: int, cut: int) -> RemoteSegment:
    """Return a segment of epoch 1, or of epochs 1 and 2 if the cut is within it."""
    epochs = {1: start, 2: start + cut} if 0 < cut <= end - start else {1: start}
    return remote(number, start, end, epochs)


@given(st.lists(segments, max_size=8), st.data())
def test_look_ups_find_a_covering_segment_whenever_one_is_finished(
    shapes: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """The obvious search over all finished segments finds one exactly if the fold does, and the
    segment found contains the record."""
    made = [_segment(number, *shape) for number, shape in enumerate(shapes)]
    metadata = RemoteMetadata()
    states: dict[int, RemoteSegmentState] = {}
    for number in data.draw(st.lists(st.integers(0, max(len(made) - 1, 0)), max_size=20)):
        if number >= len(made):
            continue
        state = states.get(number)
        if state is None:
            assert metadata.apply(made[number]) is None
            states[number] = STARTED
        elif state is not DELETED:
            following = data.draw(
                st.sampled_from(
                    {STARTED: (FINISHED, DELETING), FINISHED: (DELETING,), DELETING: (DELETED,)}[
                        state
                    ]
                )
            )
            assert metadata.apply(update(number, following)) is None
            states[number] = following
    for epoch in (1, 2):
        covering = [
            one
            for number, one in enumerate(made)
            if states.get(number) is FINISHED and any(at.epoch == epoch for at in one.leader_epochs)
        ]
        for offset in range(34):
            expected = any(
                next(at.start_offset for at in one.leader_epochs if at.epoch == epoch)
                <= offset
                <= one.end_offset_of(Epoch(epoch))
                for one in covering
            )
            segment = metadata.find(Epoch(epoch), Offset(offset))
            assert (segment is not None) == expected
            if segment is not None:
                start = next(at.start_offset for at in segment.leader_epochs if at.epoch == epoch)
                assert start <= offset <= segment.end_offset_of(Epoch(epoch))
                assert segment.state is FINISHED
        ends = [one.end_offset_of(Epoch(epoch)) for one in covering]
        assert metadata.highest_offset(Epoch(epoch)) == max(ends, default=None)


_steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([STARTED, FINISHED, DELETING, DELETED])),
    max_size=24,
)


@given(_steps)
def test_the_fold_of_a_compacted_topic_is_the_same(
    steps: list[tuple[int, RemoteSegmentState]],
) -> None:
    """With a key of segment and state, compaction keeps the last record of each state. A late
    record of a deposed leader changes nothing before and after compaction."""
    history: list[RemoteRecord] = []
    live = RemoteMetadata()
    written: set[tuple[int, RemoteSegmentState]] = set()
    for number, state in steps:
        if state in (STARTED, FINISHED) and (number, state) in written:
            continue  # an id is used for one copy, by one broker
        if state is not STARTED and (number, STARTED) not in written:
            continue
        written.add((number, state))
        record: RemoteRecord = update(number, state)
        if state is STARTED:
            record = remote(number, number // 2 * 10, 9 + number * 10)
        elif state is DELETED:
            record = RemoteSegmentRemoval(segment_id(number))
            if live.apply(record) is None:
                history.append(record)
            continue
        live.apply(record)
        history.append(record)
    compacted = RemoteMetadata()
    for record in _compacted(history):
        compacted.apply(record)
    assert list(compacted.all_segments()) == list(live.all_segments())
    for offset in range(45):
        assert found(compacted, 0, offset) == found(live, 0, offset)


def _compacted(history: list[RemoteRecord]) -> list[RemoteRecord]:
    kept: list[RemoteRecord] = []
    for index, record in enumerate(history):
        later = history[index + 1 :]
        if isinstance(record, RemoteSegmentRemoval) or any(
            isinstance(one, RemoteSegmentRemoval) and one.id == record.id for one in later
        ):
            continue
        if isinstance(record, RemoteSegmentUpdate) and any(
            isinstance(one, RemoteSegmentUpdate)
            and one.id == record.id
            and one.state is record.state
            for one in later
        ):
            continue
        kept.append(record)
    return kept


def test_a_late_finish_of_a_deposed_leader_never_revives_a_deleted_segment() -> None:
    metadata = RemoteMetadata()
    add(metadata, remote(1, 0, 9), DELETING)
    assert metadata.apply(update(1, FINISHED)) is not None
    assert metadata.apply(RemoteSegmentRemoval(segment_id(1))) is None
    assert metadata.apply(update(1, FINISHED)) is not None
    assert list(metadata.all_segments()) == []
