"""Which segments of a cleaning are merged into one (features CP14)."""

from dataclasses import replace

import pytest

from ottla.model.limits import INT32_MAX
from ottla.storage.cleaner.cleaning_task import CleanableSegment, CleaningTask
from ottla.storage.cleaner.segment_groups import SourceSegment, group_segments

TASK = CleaningTask(
    directory="/orders-0",
    segments=(),
    log_start_offset=0,
    first_dirty_offset=0,
    end_offset=20,
    high_watermark=20,
    now_ms=1,
    delete_retention_ms=0,
    segment_bytes=1_000,
    segment_index_bytes=100,
    index_interval_bytes=0,
    max_message_bytes=1_000,
    map_bytes=1_000,
    map_load_factor=0.9,
    io_buffer_bytes=1_000,
    producers={},
)


def source(
    base_offset: int,
    end_offset: int,
    *,
    size_bytes: int = 10,
    offset_index_bytes: int = 1,
    time_index_bytes: int = 1,
) -> SourceSegment:
    segment = CleanableSegment(base_offset, end_offset, size_bytes, 1)
    return SourceSegment(segment, offset_index_bytes, time_index_bytes)


def bases(sources: list[SourceSegment], task: CleaningTask = TASK) -> list[list[int]]:
    return [[one.segment.base_offset for one in group] for group in group_segments(sources, task)]


@pytest.mark.parametrize("size", ["size_bytes", "offset_index_bytes", "time_index_bytes"])
def test_a_group_fits_into_one_segment_and_each_of_its_indexes(size: str) -> None:
    full = TASK.segment_bytes if size == "size_bytes" else TASK.segment_index_bytes
    halves = [source(base, base + 10, **{size: full // 2}) for base in (0, 10, 20, 30)]
    assert bases(halves) == [[0, 10], [20, 30]]

    above = [source(base, base + 10, **{size: full // 2 + 1}) for base in (0, 10)]
    assert bases(above) == [[0], [10]]


@pytest.mark.parametrize(
    ("end_offset", "groups"),
    [(INT32_MAX + 1, [[0, 10]]), (INT32_MAX + 2, [[0], [10]])],
)
def test_the_offsets_of_a_group_span_what_an_index_can_hold(
    end_offset: int, groups: list[list[int]]
) -> None:
    """An entry of an index has its offset in four bytes, from the segment's base on."""
    assert bases([source(0, 10), source(10, end_offset)]) == groups


def test_the_span_counts_from_the_group_and_not_from_the_log() -> None:
    far = [source(base, base + 10) for base in (0, INT32_MAX, INT32_MAX + 10)]
    assert bases(far) == [[0], [INT32_MAX, INT32_MAX + 10]]


def test_a_segment_that_does_not_fit_by_itself_is_a_group() -> None:
    large = source(10, 20, size_bytes=TASK.segment_bytes + 1)
    assert bases([source(0, 10), large, source(20, 30)]) == [[0], [10], [20]]
    assert bases([large], replace(TASK, segment_bytes=1)) == [[10]]
