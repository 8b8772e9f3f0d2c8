"""Progress of ranges, and reports of lost records."""

from ottla.model.ids import Offset
from ottla.pipeline.read.fetched_batches import FetchedBatches
from ottla.pipeline.read.range_course import RangeCourse, TaskRanges
from ottla.pipeline.read.ranges import OffsetRange
from ottla.wire.batch_builder import build_batch


def fetched(first: int, count: int, end: int) -> FetchedBatches:
    """Return an answer with `count` records."""
    data = build_batch([(5, None, b"")] * count, base_offset=Offset(first)) if count else b""
    return FetchedBatches(data, first, end)


def test_ranges_are_given_out_in_their_order_whichever_leader_answers_first() -> None:
    courses = TaskRanges([OffsetRange("t", 1, 0, 10), OffsetRange("t", 0, 0, 10)])
    first, second = courses
    second.take(fetched(0, 10, 10))
    assert courses.current() is first
    assert list(courses.hungry()) == [first]
    first.take(fetched(0, 4, 10))
    assert list(courses.hungry()) == []
    first.give()
    assert list(courses.hungry()) == [first]
    assert courses.current() is first
    first.take(fetched(4, 6, 10))
    first.give()
    assert courses.current() is second
    second.give()
    assert courses.current() is None


def test_a_range_without_offsets_is_done_at_once() -> None:
    assert TaskRanges([OffsetRange("t", 0, 5, 5)]).current() is None


def test_an_answer_without_records_moves_nothing() -> None:
    course = RangeCourse(OffsetRange("t", 0, 5, 9))
    course.take(fetched(5, 0, 9))
    assert (course.position, course.held, course.is_done) == (5, None, False)


def test_what_retention_took_is_named_and_stepped_over() -> None:
    course = RangeCourse(OffsetRange("t", 0, 5, 9))
    course.is_out_of_range = True
    assert course.on_log_bounds(7, 20) == (
        "t-0 has lost its records from offset 5 to 6: its log begins at 7 now"
    )
    assert (course.position, course.is_out_of_range) == (7, False)


def test_a_range_that_is_gone_as_a_whole_is_done() -> None:
    for earliest, latest in ((30, 40), (0, 4)):
        course = RangeCourse(OffsetRange("t", 0, 5, 9))
        lost = course.on_log_bounds(earliest, latest)
        assert lost is not None and "from offset 5 to 8" in lost
        assert course.is_done


def test_a_log_that_has_the_position_after_all_is_asked_again() -> None:
    course = RangeCourse(OffsetRange("t", 0, 5, 9))
    course.is_out_of_range = True
    assert course.on_log_bounds(0, 5) is None
    assert (course.position, course.is_out_of_range) == (5, False)


def test_what_lies_before_the_range_is_no_loss() -> None:
    course = RangeCourse(OffsetRange("t", 0, 50, 90), lookback=20)
    assert course.position == 30
    assert course.on_log_bounds(40, 100) is None
    assert course.position == 40
    course = RangeCourse(OffsetRange("t", 0, 50, 90), lookback=200)
    assert course.position == 0
    assert course.on_log_bounds(60, 100) == (
        "t-0 has lost its records from offset 50 to 59: its log begins at 60 now"
    )


def test_a_partition_that_is_gone_loses_what_was_not_fetched() -> None:
    course = RangeCourse(OffsetRange("t", 0, 0, 10))
    course.take(fetched(0, 4, 10))
    assert course.lose_rest("why") == "t-0 has lost its records from offset 4 to 9: why"
    assert course.is_fetched
    assert not course.is_done
    course.give()
    assert course.is_done
