"""Positions of tables after batches of a stream: each joins the one before."""

import json

import pytest

from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition
from ottla.pipeline.export.table_position import LogBounds, TablePosition
from ottla.pipeline.read.offsets import StreamPosition
from ottla.pipeline.tables.batch_position import position_after, starting_offsets


def end_at(
    *ends: int, topic_id: str = "id-1", begin: tuple[int, ...] | None = None
) -> StreamPosition:
    """Return the end of a batch by the offsets of each partition."""

    def offsets(found: tuple[int, ...]) -> dict[TopicPartition, int]:
        return {TopicPartition("orders", number): at for number, at in enumerate(found)}

    ids = {"orders": topic_id}
    return StreamPosition(offsets(ends), ids, None if begin is None else offsets(begin))


def test_the_first_batch_begins_at_the_start_of_the_query() -> None:
    found = position_after(None, end_at(10, 5, begin=(3, 5)), "orders", "c1")
    assert found == TablePosition(
        topic="orders",
        topic_id="id-1",
        next_offsets={0: 10, 1: 5},
        commit_number=1,
        commit_id="c1",
        ranges={0: (3, 10)},
    )


def test_a_batch_continues_the_table_also_in_a_new_partition() -> None:
    first = position_after(None, end_at(10), "orders", "c1")
    found = position_after(first, end_at(12, 4), "orders", "c2")
    assert found is not None
    assert (found.commit_number, found.next_offsets) == (2, {0: 12, 1: 4})
    assert found.ranges == {0: (10, 12), 1: (0, 4)}
    assert position_after(found, end_at(12, 4), "orders", "c3") is None


def test_a_batch_of_another_topic_or_before_the_tables_end_is_an_error() -> None:
    first = position_after(None, end_at(10), "orders", "c1")
    with pytest.raises(RefusedError, match="created again"):
        position_after(first, end_at(12, topic_id="id-2"), "orders", "c2")
    with pytest.raises(RefusedError, match="ends at offset 9"):
        position_after(first, end_at(9), "orders", "c2")


def test_a_stream_begins_at_the_tables_end() -> None:
    position = position_after(None, end_at(10), "orders", "c1")
    assert position is not None
    bounds = LogBounds(topic="orders", topic_id="id-1", starts={0: 4, 1: 0}, ends={0: 20, 1: 7})
    assert json.loads(starting_offsets(position, bounds)) == {"orders": {"0": 10, "1": 0}}
    late = LogBounds(topic="orders", topic_id="id-1", starts={0: 15}, ends={0: 20})
    with pytest.raises(RefusedError, match=r"from offset 10, where the table ends, to 14"):
        starting_offsets(position, late)
