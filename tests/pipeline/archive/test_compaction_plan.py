"""Which small files become one."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.archive.compaction_plan import FILES_MAX, Merge, merges_of, replaced
from ottla.pipeline.archive.sink_log import SinkLogEntry

TARGET = 100


def entry(directory: str, number: int, size: int) -> SinkLogEntry:
    return SinkLogEntry(f"/lake/{directory}/part-{number}.parquet", size)


ENTRIES = st.lists(
    st.tuples(st.sampled_from(["hour=1", "hour=2", "hour=3"]), st.integers(0, 2 * TARGET))
).map(lambda rows: [entry(name, number, size) for number, (name, size) in enumerate(rows)])


def test_small_files_of_a_directory_become_one_in_the_order_of_the_log() -> None:
    found = merges_of([entry("b", 2, 10), entry("a", 1, 10), entry("b", 0, 10)], TARGET)
    assert found == [Merge("/lake/b", (entry("b", 2, 10), entry("b", 0, 10)))]


def test_a_file_that_is_large_enough_is_left_alone() -> None:
    assert merges_of([entry("a", 0, 50), entry("a", 1, 50)], TARGET) == []
    assert len(merges_of([entry("a", 0, 49), entry("a", 1, 49)], TARGET)) == 1


def test_a_merge_opens_a_bounded_number_of_files() -> None:
    found = merges_of([entry("a", number, 0) for number in range(2 * FILES_MAX + 2)], TARGET)
    assert [len(merge.entries) for merge in found] == [FILES_MAX, FILES_MAX, 2]


def test_what_is_no_parquet_is_left_alone() -> None:
    rows = [SinkLogEntry(f"/lake/a/part-{number}.csv", 1) for number in range(3)]
    assert merges_of(rows, TARGET) == []


@given(ENTRIES)
def test_a_merge_is_of_several_small_files_of_one_directory_and_not_larger_than_the_target(
    entries: list[SinkLogEntry],
) -> None:
    found = merges_of(entries, TARGET)
    for merge in found:
        assert len(merge.entries) > 1
        assert merge.byte_count <= TARGET
        assert {one.path.rpartition("/")[0] for one in merge.entries} == {merge.directory}
    every = [one for merge in found for one in merge.entries]
    assert len(every) == len(set(every))


@given(ENTRIES)
def test_what_a_merge_made_stands_where_its_first_file_stood_and_the_rest_is_as_it_was(
    entries: list[SinkLogEntry],
) -> None:
    merged = [
        (merge, [SinkLogEntry(f"{merge.directory}/compacted-{number}.parquet", merge.byte_count)])
        for number, merge in enumerate(merges_of(entries, TARGET))
    ]
    found = replaced(entries, merged)
    gone = {one for merge, _made in merged for one in merge.entries}
    made = {one for _merge, some in merged for one in some}
    assert [one for one in found if one not in made] == [one for one in entries if one not in gone]
    assert [one for one in found if one in made] == sorted(
        made,
        key=lambda one: min(
            entries.index(first) for merge, some in merged if one in some for first in merge.entries
        ),
    )
    assert sum(one.byte_count for one in found) == sum(one.byte_count for one in entries)


@given(ENTRIES)
def test_a_second_compaction_of_large_files_has_nothing_to_do(entries: list[SinkLogEntry]) -> None:
    large = [one for one in entries if one.byte_count * 2 >= TARGET]
    assert merges_of(large, TARGET) == []
