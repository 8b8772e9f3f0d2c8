"""Reads the lags of all groups in one call, in records and in seconds, by group and by partition.

The end offsets of all partitions are requested together, and the committed offsets of each group
from its coordinator. The result has the partitions for which a group has a committed offset.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import trio

from ottla.client.admin import Admin
from ottla.insight.facts.first_unread_driver import Unread, seconds_behind
from ottla.insight.facts.group_view import committed_offsets
from ottla.insight.facts.offsets import offsets_at
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import EARLIEST, LATEST

GROUPS_AT_ONCE = 8
NO_LEADER = -1
Report = Callable[[str, int, int], None]


class TimedLag(NamedTuple):
    """Lag of a group in one partition, in records and seconds. `end` is None if the partition was
    deleted or has no leader."""

    at: TopicPartition
    committed: int
    end: int | None
    seconds: float | None
    """Age in seconds of the first record of the partition that the group has not consumed. It is 0
    if all records were consumed, or None if the age is unknown."""

    @property
    def lag(self) -> int | None:
        """Number of offsets between the group's committed offset and the partition's end, or None
        if it is unknown."""
        return None if self.end is None else max(0, self.end - self.committed)


class GroupLag(NamedTuple):
    """Lag of one group, by partition and in total."""

    group: str
    partitions: list[TimedLag]

    @property
    def lag(self) -> int | None:
        """Lag of the group in records, summed over the partitions whose lag is known. None if no
        lag is known."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None

    @property
    def seconds(self) -> float | None:
        """Largest lag of the group in one partition, in seconds. None if no lag in seconds is
        known."""
        return max(
            (one.seconds for one in self.partitions if one.seconds is not None), default=None
        )


async def all_lags(
    admin: Admin, *, isolation_level: str, report: Report = lambda _noun, _done, _total: None
) -> tuple[list[GroupLag], list[RefusedError]]:
    """Return the lag of every group in order of group ids, and the refusals for groups whose
    offsets could not be read.

    `report` is called to show progress. Its arguments are a noun, the number of finished look-ups
    and the number of all look-ups.
    """
    groups = [one.group_id for one in await admin.list_groups()]
    committed, refusals = await _committed_of(admin, groups, report)
    timed = await _timed(admin, committed, isolation_level, report)
    return [GroupLag(group, found) for group, found in timed.items()], refusals


async def group_lag(admin: Admin, group: str, *, isolation_level: str) -> GroupLag:
    """Return the lag of one group, in records and seconds."""
    committed = {group: await committed_offsets(admin, group)}
    timed = await _timed(admin, committed, isolation_level, lambda _noun, _done, _total: None)
    return GroupLag(group, timed[group])


async def _committed_of(
    admin: Admin, groups: Iterable[str], report: Report
) -> tuple[dict[str, dict[TopicPartition, int]], list[RefusedError]]:
    wanted = sorted(groups)
    found: dict[str, dict[TopicPartition, int]] = {}
    refusals: dict[str, RefusedError] = {}
    limit = trio.CapacityLimiter(GROUPS_AT_ONCE)

    async def ask(group: str) -> None:
        async with limit:
            try:
                found[group] = await committed_offsets(admin, group)
            except RefusedError as refusal:
                refusals[group] = refusal
        report("groups", len(found) + len(refusals), len(wanted))

    async with trio.open_nursery() as nursery:
        for group in wanted:
            nursery.start_soon(ask, group)
    return (
        {group: found[group] for group in wanted if group in found},
        [refusals[group] for group in sorted(refusals)],
    )


async def _timed(
    admin: Admin, committed: dict[str, dict[TopicPartition, int]], level: str, report: Report
) -> dict[str, list[TimedLag]]:
    partitions = sorted(await led(admin, {at for offsets in committed.values() for at in offsets}))
    starts = await offsets_at(admin.cluster, partitions, EARLIEST)
    ends = await offsets_at(admin.cluster, partitions, LATEST, isolation_level=level)

    def unread(at: TopicPartition, offset: int) -> Unread | None:
        if at not in ends or offset >= ends[at]:
            return None
        # Retention may have deleted the first record that was not consumed.
        return Unread(at, max(offset, starts[at]))

    places = [
        unread(at, offset) for offsets in committed.values() for at, offset in offsets.items()
    ]
    ages = await seconds_behind(
        admin.cluster,
        filter(None, places),
        isolation_level=level,
        report=lambda done, total: report("partitions", done, total),
    )

    def timed(at: TopicPartition, offset: int) -> TimedLag:
        end, place = ends.get(at), unread(at, offset)
        if end is None:
            return TimedLag(at, offset, None, None)
        return TimedLag(at, offset, end, 0.0 if place is None else ages[place])

    return {
        group: [timed(at, offsets[at]) for at in sorted(offsets)]
        for group, offsets in committed.items()
    }


async def led(admin: Admin, wanted: set[TopicPartition]) -> set[TopicPartition]:
    """Return the partitions in `wanted` that exist and have a leader. Requests for any other
    partition would delay the whole command."""
    if not wanted:
        return set()
    metadata = await admin.cluster.metadata({at.topic for at in wanted})
    return wanted & {
        TopicPartition(topic.name or "", row.partition_index)
        for topic in metadata.topics
        for row in topic.partitions
        if row.leader_id != NO_LEADER
    }
