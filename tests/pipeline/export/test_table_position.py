"""Positions of tables: successive exports join without gap or overlap, and gaps are errors."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError, RefusedError
from ottla.pipeline.export.table_position import (
    ExportProgress,
    LogBounds,
    TablePosition,
    first_position,
    pending_ranges,
)


def bounds_of(ends: dict[int, int], starts: dict[int, int] | None = None) -> LogBounds:
    """Return the bounds of a topic."""
    return LogBounds(
        topic="orders", topic_id="id-1", starts=starts or dict.fromkeys(ends, 0), ends=ends
    )


@given(data=st.data())
def test_every_offset_is_read_once_over_commits_and_restarts(data: st.DataObject) -> None:
    counts = st.dictionaries(st.integers(0, 3), st.integers(0, 9), min_size=1, max_size=4)
    ends = data.draw(counts)
    position = first_position(bounds_of(ends))
    seen: list[tuple[int, int]] = []
    for _ in range(data.draw(st.integers(1, 5))):
        growth = data.draw(counts)
        ends = {one: ends.get(one, 0) + growth.get(one, 0) for one in {*ends, *growth}}
        progress = ExportProgress(position)
        ranges = pending_ranges(progress.present(), bounds_of(ends))
        progress.begin(ranges)
        rows = [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]
        # A log may lack offsets: markers, and what compaction has removed.
        chance = Random(data.draw(st.integers(0, 1 << 30)))
        rows = [row for row in rows if chance.random() < 0.7]
        kept = rows[: chance.randint(0, len(rows))]
        for partition, offset in kept:
            progress.add(partition, offset, offset, 1)
        if kept == rows:
            progress.end()
        if data.draw(st.booleans()):
            committed = progress.position("x")
            progress.on_committed(committed)
            seen += kept
            position = TablePosition.from_text(committed.to_text(), "here")
            assert position == committed
    assert len(set(seen)) == len(seen)
    for partition, offset in seen:
        assert offset < position.next_offsets[partition]


def test_the_commit_has_the_ranges_that_it_adds() -> None:
    progress = ExportProgress(first_position(bounds_of({0: 10, 1: 5}, {0: 3, 1: 5})))
    progress.begin(pending_ranges(progress.present(), bounds_of({0: 10, 1: 5}, {0: 3, 1: 5})))
    progress.add(0, 4, 6, 2)
    position = progress.position("x")
    assert position.ranges == {0: (3, 7)}
    assert position.next_offsets == {0: 7, 1: 5}


def position_at(offset: int) -> TablePosition:
    return TablePosition(topic="orders", topic_id="id-1", next_offsets={0: offset}, commit_number=1)


def test_a_log_that_begins_behind_the_table_is_a_gap_with_both_offsets() -> None:
    with pytest.raises(
        RefusedError, match=r"from offset 100, where the table ends, to 199.*at 200"
    ):
        pending_ranges(position_at(100), bounds_of({0: 300}, {0: 200}))


def test_a_new_partition_begins_at_zero() -> None:
    (one,) = pending_ranges(position_at(7), bounds_of({0: 7, 1: 4}))
    assert (one.partition, one.start, one.end) == (1, 0, 4)
    with pytest.raises(RefusedError, match="offset 0, where the table ends, to 2"):
        pending_ranges(position_at(7), bounds_of({0: 7, 1: 4}, {0: 0, 1: 3}))


def test_a_truncated_log_is_an_error_with_both_offsets() -> None:
    with pytest.raises(RefusedError, match=r"ends at offset 50, and the table has .* up to 99"):
        pending_ranges(position_at(100), bounds_of({0: 50}))


def test_a_topic_that_was_created_again_is_an_error_even_with_as_many_records() -> None:
    again = replace(bounds_of({0: 100}), topic_id="id-2")
    with pytest.raises(RefusedError, match=r"created again.*\{0: 100\}.*id-1.*id-2.*\{0: 0 to 100"):
        pending_ranges(position_at(100), again)


def test_another_topic_and_a_missing_partition_are_refused() -> None:
    with pytest.raises(RefusedError, match="of topic 'orders', not of 'bills'"):
        pending_ranges(position_at(1), replace(bounds_of({0: 1}), topic="bills"))
    with pytest.raises(RefusedError, match="orders-0 is gone"):
        pending_ranges(position_at(1), bounds_of({1: 0}))


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"version":2}', position_at(1).to_text().replace('"0":1', '"0":-1')],
)
def test_a_malformed_position_is_corrupt_data(text: str) -> None:
    with pytest.raises(CorruptDataError, match="here"):
        TablePosition.from_text(text, "here")
