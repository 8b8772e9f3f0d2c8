"""Choice of the segments that log compaction merges into one: as many as fit into one segment of
full size. Pure.

Each compaction shrinks segments; without merging, a log would end up as a large number of small
files.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.model.limits import INT32_MAX
from ottla.storage.cleaner.cleaning_task import CleanableSegment, CleaningTask


class SourceSegment(NamedTuple):
    """One segment that a compaction reads, with the sizes of its indexes."""

    segment: CleanableSegment
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(
    sources: Sequence[SourceSegment], task: CleaningTask
) -> list[list[SourceSegment]]:
    """Divide the segments that a compaction reads into groups. Each group is merged into one new
    segment. Returns the non-empty groups in log order.

    The bytes, index bytes and offsets of a group fit into one segment. A segment that is already
    too large is a group of its own.
    """
    groups: list[list[SourceSegment]] = []
    left: tuple[int, ...] = (0, 0, 0)
    for source in sources:
        sizes = (source.segment.size_bytes, source.offset_index_bytes, source.time_index_bytes)
        left = tuple(room - size for room, size in zip(left, sizes, strict=True))
        if groups and min(left) >= 0:
            span = source.segment.end_offset - 1 - groups[-1][0].segment.base_offset
            if span <= INT32_MAX:
                groups[-1].append(source)
                continue
        groups.append([source])
        full = (task.segment_bytes, task.segment_index_bytes, task.segment_index_bytes)
        left = tuple(room - size for room, size in zip(full, sizes, strict=True))
    return groups
