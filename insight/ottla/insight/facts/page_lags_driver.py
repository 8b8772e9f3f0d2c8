"""Reader of groups' lags for pages that show some groups or partitions. It reads only the lags that
are shown.

End offsets are requested for all partitions together, by one request to each leader. Partitions
without a leader have no end offset, and delay nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple

import trio

from ottla.client.admin import Admin
from ottla.insight.facts.first_unread_driver import Unread, seconds_behind
from ottla.insight.facts.group_view import committed_offsets
from ottla.insight.facts.lags_driver import GROUPS_AT_ONCE, led
from ottla.insight.facts.offsets import offsets_at
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import EARLIEST, LATEST

PARTITIONS_MAX = 20_000
"""Maximum number of partitions whose end offsets are requested for a page that lists groups. The
lag of a group with further partitions is unknown."""


class LagRow(NamedTuple):
    """Lag of a group in one partition, without the age of its records."""

    at: TopicPartition
    committed: int | None
    """Committed offset of the group in this partition, or None if nothing was committed."""
    end: int | None
    """End offset of the partition, or None if the partition was deleted or has no leader."""

    @property
    def lag(self) -> int | None:
        """Number of offsets between the group's committed offset and the partition's end, or None
        if it is unknown."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


async def lag_rows(admin: Admin, group: str, owned: Iterable[TopicPartition]) -> list[LagRow]:
    """Return the lag of a group in each partition for which it has a committed offset or a member,
    sorted by partition."""
    committed = await committed_offsets(admin, group)
    ends = await _ends(admin, {*committed, *owned})
    return [LagRow(at, committed.get(at), ends.get(at)) for at in sorted({*committed, *owned})]


async def record_lags(admin: Admin, groups: Iterable[str]) -> dict[str, int | None]:
    """Return the lag of each group in records, summed over its partitions. The lag is None if it is
    not known for any partition. A group whose offsets cannot be read has no entry."""
    committed: dict[str, dict[TopicPartition, int]] = {}
    limit = trio.CapacityLimiter(GROUPS_AT_ONCE)

    async def ask(group: str) -> None:
        async with limit:
            try:
                committed[group] = await committed_offsets(admin, group)
            except OttlaError:
                return  # The page shows this group without a lag.

    async with trio.open_nursery() as nursery:
        for group in groups:
            nursery.start_soon(ask, group)
    wanted = sorted({at for offsets in committed.values() for at in offsets})
    ends = await _ends(admin, wanted[:PARTITIONS_MAX])
    return {group: _sum(offsets, ends) for group, offsets in committed.items()}


async def ages_of(admin: Admin, rows: Iterable[LagRow]) -> dict[TopicPartition, float | None]:
    """Return, by partition, the age in seconds of the first record that the group has not consumed.
    Partitions of `rows` without such a record are left out. Each age requires a fetch."""
    late = {row.at: row.committed for row in rows if row.lag and row.committed is not None}
    starts = await offsets_at(admin.cluster, sorted(late), EARLIEST)
    # Retention may have deleted the first record that was not consumed.
    places = {at: Unread(at, max(offset, starts[at])) for at, offset in late.items()}
    ages = await seconds_behind(admin.cluster, places.values())
    return {at: ages[place] for at, place in places.items()}


async def _ends(admin: Admin, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return await offsets_at(admin.cluster, sorted(await led(admin, set(wanted))), LATEST)


def _sum(offsets: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> int | None:
    known = [max(0, ends[at] - offset) for at, offset in offsets.items() if at in ends]
    return sum(known) if known else None
