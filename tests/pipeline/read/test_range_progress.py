"""Progress of ranges, and reports of lost records."""

from ottla.model.ids import Offset
from ottla.pipeline.read.fetched_batches import FetchedBatches
from ottla.pipeline.read.range_progress import RangeProgress, TaskRanges
from ottla.pipeline.read.ranges import OffsetRange
from ottla.wire.batch_builder import build_batch


def fetched(first: int, count: int, end: int) -> FetchedBatches:
    """Return an answer with `count` records."""
    data = build_batch([(5, None, b"")] * count, base_offset=Offset(first)) if count else b""
    return FetchedBatches(data, first, end)


def test_ranges_are_given_out_in_their_order_whichever_leader_answers_first() -> None:
    wanted = TaskRanges([OffsetRange("t", 1, 0, 10), OffsetRange("t", 0, 0, 10)])
    first, second = wanted
    second.take(fetched(0, 10, 10))
    assert wanted.current() is first
    assert list(wanted.unfetched()) == [first]
    first.take(fetched(0, 4, 10))
    assert list(wanted.unfetched()) == []
    first.give()
    assert list(wanted.unfetched()) == [first]
    assert wanted.current() is first
    first.take(fetched(4, 6, 10))
    first.give()
    assert wanted.current() is second
    second.give()
    assert wanted.current() is None


def test_a_range_without_offsets_is_done_at_once() -> None:
    assert TaskRanges([OffsetRange("t", 0, 5, 5)]).current() is None


def test_an_answer_without_records_moves_nothing() -> None:
    progress = RangeProgress(OffsetRange("t", 0, 5, 9))
    progress.take(fetched(5, 0, 9))
    assert (progress.position, progress.held, progress.is_done) == (5, None, False)


def test_what_retention_took_is_named_and_stepped_over() -> None:
    progress = RangeProgress(OffsetRange("t", 0, 5, 9))
    progress.is_out_of_range = True
    assert progress.on_log_bounds(7, 20) == (
        "t-0 has lost its records from offset 5 to 6: its log begins at 7 now"
    )
    assert (progress.position, progress.is_out_of_range) == (7, False)


def test_a_range_that_is_gone_as_a_whole_is_done() -> None:
    for earliest, latest in ((30, 40), (0, 4)):
        progress = RangeProgress(OffsetRange("t", 0, 5, 9))
        lost = progress.on_log_bounds(earliest, latest)
        assert lost is not None and "from offset 5 to 8" in lost
        assert progress.is_done


def test_a_log_that_has_the_position_after_all_is_asked_again() -> None:
    progress = RangeProgress(OffsetRange("t", 0, 5, 9))
    progress.is_out_of_range = True
    assert progress.on_log_bounds(0, 5) is None
    assert (progress.position, progress.is_out_of_range) == (5, False)


def test_what_lies_before_the_range_is_no_loss() -> None:
    progress = RangeProgress(OffsetRange("t", 0, 50, 90), lookback=20)
    assert progress.position == 30
    assert progress.on_log_bounds(40, 100) is None
    assert progress.position == 40
    progress = RangeProgress(OffsetRange("t", 0, 50, 90), lookback=200)
    assert progress.position == 0
    assert progress.on_log_bounds(60, 100) == (
        "t-0 has lost its records from offset 50 to 59: its log begins at 60 now"
    )


def test_a_partition_that_is_gone_loses_what_was_not_fetched() -> None:
    progress = RangeProgress(OffsetRange("t", 0, 0, 10))
    progress.take(fetched(0, 4, 10))
    assert progress.lose_rest("why") == "t-0 has lost its records from offset 4 to 9: why"
    assert progress.is_fetched
    assert not progress.is_done
    progress.give()
    assert progress.is_done
