"""Computes the new offsets of a group: the plan of a reset, which commands and pages show before
they commit it.

This module only reads from the cluster; it commits no offsets. Each new offset is limited to the
range from the partition's first offset to its end offset.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from ottla.client.admin import Admin
from ottla.insight.facts.offsets import offsets_at
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import EARLIEST, LATEST

NO_OFFSET = -1


class ResetTo(Enum):
    """Target to which a reset moves the committed offsets of a group."""

    EARLIEST = "earliest"
    """Reset to the first offset of each partition."""
    LATEST = "latest"
    """Reset to the end offset of each partition."""
    TIME = "time"
    """Reset to the first record at or after a time in ms since 1970, or to the end offset if no
    record is that new."""
    OFFSET = "offset"
    """Reset to the same offset in each partition."""
    SHIFT = "shift"
    """Reset by a number of records forward, or back if it is negative. Partitions without a
    committed offset are moved from their first offset."""
    CURRENT = "current"
    """Reset to the committed offset, or to the end offset without one."""


class ResetRow(NamedTuple):
    """New committed offset of a group in one partition, as planned by a reset."""

    at: TopicPartition
    before: int | None
    """Committed offset of the group before the reset, or None if nothing was committed."""
    after: int
    """New committed offset, within the partition's records."""
    requested: int
    """New committed offset before it was limited to the partition's records."""

    @property
    def difference(self) -> int | None:
        """Number of offsets between the committed and the new offset. Negative if records are read
        again, None without a committed offset."""
        return None if self.before is None else self.after - self.before


async def plan_reset(
    admin: Admin,
    before: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition],
    to: ResetTo,
    value: int = 0,
) -> list[ResetRow]:
    """Return the new committed offset of a group in each partition. The target `to` determines the
    meaning of `value`: a time in ms, an offset or a number of records."""
    starts = await offsets_at(admin.cluster, partitions, EARLIEST)
    ends = await offsets_at(admin.cluster, partitions, LATEST)
    wanted: Mapping[TopicPartition, int]
    match to:
        case ResetTo.EARLIEST:
            wanted = starts
        case ResetTo.LATEST:
            wanted = ends
        case ResetTo.TIME:
            found = await offsets_at(admin.cluster, partitions, value)
            # No record is as late as the given time, so the group continues at the end.
            wanted = {
                at: ends[at] if offset == NO_OFFSET else offset for at, offset in found.items()
            }
        case ResetTo.OFFSET:
            wanted = dict.fromkeys(partitions, value)
        case ResetTo.SHIFT:
            wanted = {at: before.get(at, starts[at]) + value for at in partitions}
        case ResetTo.CURRENT:
            wanted = {at: before.get(at, ends[at]) for at in partitions}
    return limited(before, wanted, starts, ends)


async def plan_given(
    admin: Admin, before: Mapping[TopicPartition, int], given: Mapping[TopicPartition, int]
) -> list[ResetRow]:
    """Return the plan that resets a group to the given offsets, such as those in a file."""
    starts = await offsets_at(admin.cluster, given, EARLIEST)
    ends = await offsets_at(admin.cluster, given, LATEST)
    return limited(before, given, starts, ends)


def limited(
    before: Mapping[TopicPartition, int],
    wanted: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[ResetRow]:
    """Return the plan of a reset to the offsets in `wanted`, each limited to its partition's
    records."""
    return [
        ResetRow(at, before.get(at), min(max(offset, starts[at]), ends[at]), offset)
        for at, offset in wanted.items()
    ]
