"""Division into tasks: every record once, no task too large, and deterministic."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.read.ranges import RECORDS_PER_TASK, OffsetRange, pack, task_count

T = OffsetRange


@st.composite
def some_ranges(draw: st.DrawFn) -> list[OffsetRange]:
    names = st.tuples(st.sampled_from("ab"), st.integers(0, 5))
    found = draw(st.dictionaries(names, st.tuples(st.integers(0, 99), st.integers(0, 200))))
    return [OffsetRange(*name, start, start + count) for name, (start, count) in found.items()]


BOUND = st.none() | st.integers(1, 300)


@given(some_ranges(), BOUND, BOUND)
def test_every_record_is_read_once_by_tasks_of_the_asked_size(
    ranges: list[OffsetRange],
    min_partitions: int | None,
    max_records: int | None,
) -> None:
    tasks = pack(ranges, min_partitions=min_partitions, max_records=max_records)
    read = [
        (*one[:2], offset) for task in tasks for one in task for offset in range(one.start, one.end)
    ]
    wanted = [(*one[:2], offset) for one in ranges for offset in range(one.start, one.end)]
    assert sorted(read) == sorted(wanted)
    assert len(tasks) >= min(min_partitions or 1, len(wanted))
    assert all(sum(one.record_count for one in task) > 0 for task in tasks)
    if max_records:
        assert all(sum(one.record_count for one in task) <= max_records for task in tasks)


@given(some_ranges(), BOUND, BOUND, st.randoms(use_true_random=False))
def test_a_repeated_batch_gives_every_task_the_same_records(
    ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None, chance: Random
) -> None:
    again = list(ranges)
    chance.shuffle(again)
    first = pack(ranges, min_partitions=min_partitions, max_records=max_records)
    assert pack(again, min_partitions=min_partitions, max_records=max_records) == first


def test_a_topic_of_many_small_partitions_is_one_task() -> None:
    assert len(pack([T("t", n, 0, 100) for n in range(64)])) == 1


def test_a_small_batch_keeps_some_cores_at_work_and_a_large_one_spares_tasks() -> None:
    for count, tasks in ((160, 2), (1_000, 7), (2_000, 8), (10_000, 8), (20_000, 13)):
        packed = pack([T("t", n, 0, count) for n in range(64)])
        assert len(packed) == tasks
        assert max(len(task) for task in packed) - min(len(task) for task in packed) <= 1
    assert [task_count(count) for count in (0, 1, 10_000, 10_001, 80_001, 800_001)] == [
        0, 1, 1, 2, 8, 9,
    ]  # fmt: skip


def test_partitions_that_are_worth_a_task_have_one_each() -> None:
    tasks = pack([T("t", n, 0, RECORDS_PER_TASK) for n in range(64)])
    assert tasks == [(T("t", n, 0, RECORDS_PER_TASK),) for n in range(64)]


def test_a_large_partition_is_cut_only_where_that_is_asked() -> None:
    large = T("t", 0, 10, 10 + 100 * RECORDS_PER_TASK)
    assert pack([large]) == [(large,)]
    assert pack([T("t", 0, 0, 7)], min_partitions=3) == [
        (T("t", 0, 0, 2),),
        (T("t", 0, 2, 4),),
        (T("t", 0, 4, 7),),
    ]
    assert pack([T("t", 0, 0, 7)], max_records=4) == [(T("t", 0, 0, 3),), (T("t", 0, 3, 7),)]


def test_the_largest_partition_is_cut_first() -> None:
    tasks = pack([T("t", 0, 0, 300), T("t", 1, 0, 100)], min_partitions=4)
    assert [one.record_count for task in tasks for one in task] == [100, 100, 100, 100]


def test_no_records_are_no_tasks() -> None:
    assert pack([], min_partitions=4) == []
    assert pack([T("t", 0, 5, 5), T("t", 1, 9, 5)]) == []
