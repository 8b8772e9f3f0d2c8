"""Which segments of a cleaning are merged: as many as fit into one of full size.

Each pass leaves less in a segment; unmerged, a log would end as very many small files.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.model.limits import INT32_MAX
from ottla.storage.cleaner.cleaning_task import CleanableSegment, CleaningTask


class SourceSegment(NamedTuple):
    """One segment with the sizes of its indexes."""

    segment: CleanableSegment
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(
    sources: Sequence[SourceSegment], task: CleaningTask
) -> list[list[SourceSegment]]:
    """Return the segments in groups, in order, none of them empty.

    A group's bytes, its index bytes and its offsets fit into one segment.  A segment that does not
    fit by itself is its own group.
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
