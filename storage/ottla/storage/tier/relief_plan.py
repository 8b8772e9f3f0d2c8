"""Decides which local copies of segments are deleted first when a log directory is short of free
space (`local.retention.free.bytes`). Pure.

Only segments that are in the object store are deleted, and those of one log only from the oldest
on. Among the logs, the segment that was written and read the longest time ago is deleted first.

If that is not enough, active segments are closed, the largest first, so that they can be copied and
then deleted. The active segment of a log whose closed segments are not all copied yet stays open,
because closing it would free no space soon.
"""

from collections.abc import Hashable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Generic, NamedTuple, TypeVar

from ottla.model.ids import Offset
from ottla.model.limits import MIB

K = TypeVar("K", bound=Hashable)

ROLL_BYTES_MIN = MIB
"""Size in bytes of the smallest active segment that is closed for lack of free space. With a
smaller value, a directory that stays short of space gets many small segments. With a larger value,
more bytes stay on a small disk."""


class CopiedSegment(NamedTuple):
    """A closed local segment whose records are all in the object store."""

    end_offset: Offset
    size_bytes: int
    used_ms: int
    """Time in ms of the segment's newest record or of its last read, whichever is later."""


class TieredLogSpace(NamedTuple):
    """The space that a tiered log takes on its disk."""

    copied: Sequence[CopiedSegment]
    """The log's oldest segments that are all copied, oldest first."""
    active_bytes: int
    """Size in bytes of the active segment, or 0 if the segment cannot be closed or would not be
    copied."""
    has_uncopied: bool
    """True if the log has closed segments that are not copied yet."""


class ReliefPlan(NamedTuple, Generic[K]):
    """Decision about a directory that is short of free space."""

    ends: Mapping[K, Offset]
    """End offset of the local segments to delete, by log."""
    segment_count: int
    size_bytes: int
    """Total size in bytes of the segments to delete."""
    rolls: Sequence[K]
    """Logs whose active segment must be closed."""


def plan_relief(logs: Mapping[K, TieredLogSpace], missing_bytes: int) -> ReliefPlan[K]:
    """Return the segments to delete, and the active segments to close, to free `missing_bytes` of a
    directory's disk, or as much as possible."""
    keys = list(logs)
    heap = [(logs[key].copied[0].used_ms, at, 0) for at, key in enumerate(keys) if logs[key].copied]
    heapify(heap)
    ends: dict[K, Offset] = {}
    count = freed_bytes = 0
    while heap and freed_bytes < missing_bytes:
        _, at, index = heap[0]
        copied = logs[keys[at]].copied
        ends[keys[at]] = copied[index].end_offset
        freed_bytes += copied[index].size_bytes
        count += 1
        if index + 1 < len(copied):
            heapreplace(heap, (copied[index + 1].used_ms, at, index + 1))
        else:
            heappop(heap)
    rolls: list[K] = []
    expected_bytes = freed_bytes
    for key in sorted(keys, key=lambda key: -logs[key].active_bytes):
        space = logs[key]
        if expected_bytes >= missing_bytes or space.active_bytes < ROLL_BYTES_MIN:
            break
        if not space.has_uncopied:
            rolls.append(key)
            expected_bytes += space.active_bytes
    return ReliefPlan(ends, count, freed_bytes, rolls)
