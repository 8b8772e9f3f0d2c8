"""Information about the cluster that several pages share: the numbers of its partitions, and the
latest changes of the metadata.

The information is cached for each admin client. A page, its live part and further open pages
therefore need only one request to the brokers.
"""

from weakref import WeakKeyDictionary

import trio

from ottla.client.admin import Admin
from ottla.insight.facts.changes_driver import RecentChanges, later_changes, recent_changes
from ottla.insight.facts.partition_totals_driver import PartitionTotals, read_partition_totals

PARTITIONS_PER_S = 500
"""Maximum average number of partitions whose state is requested per second. The totals of 10,000
partitions are therefore cached for 20 s."""
KEPT_S_MAX = 60.0
"""Maximum seconds for which totals of partitions are cached."""
CHANGES_KEPT_S = 600.0
"""Time in seconds after which all changes are read again. Until then, only the changes since the
last read are requested."""


class _SharedFacts:
    def __init__(self) -> None:
        self.totals: PartitionTotals | None = None
        self.totals_at_s = 0.0
        self.totals_lock = trio.Lock()
        self.changes: RecentChanges | None = None
        self.changes_at_s = 0.0
        self.changes_lock = trio.Lock()


_KEPT: WeakKeyDictionary[Admin, _SharedFacts] = WeakKeyDictionary()


def known_totals(admin: Admin) -> PartitionTotals | None:
    """Return the totals of partitions if they are recent, without a request to the cluster."""
    kept = _KEPT.setdefault(admin, _SharedFacts())
    if kept.totals is None:
        return None
    kept_s = min(KEPT_S_MAX, kept.totals.partition_count / PARTITIONS_PER_S)
    return kept.totals if trio.current_time() - kept.totals_at_s < kept_s else None


def known_partition_count(admin: Admin) -> int | None:
    """Return the number of partitions when it was last read, or None if it was never read."""
    totals = _KEPT.setdefault(admin, _SharedFacts()).totals
    return None if totals is None else totals.partition_count


async def partition_totals(admin: Admin) -> PartitionTotals:
    """Return the numbers of partitions, which are at most KEPT_S_MAX seconds old.

    Raises RefusedError if the broker that responds cannot return metadata yet.
    """
    kept = _KEPT.setdefault(admin, _SharedFacts())
    async with kept.totals_lock:
        found = known_totals(admin)
        if found is None:
            at_s = trio.current_time()
            found = kept.totals = await read_partition_totals(admin)
            kept.totals_at_s = at_s
        return found


async def latest_changes(admin: Admin, *, since_ms: int, count_max: int) -> RecentChanges:
    """Return the most recent changes of the metadata since `since_ms` (ms since 1970), at most
    `count_max`.

    Changes that an earlier call has read are cached. Every call must therefore have the same
    `count_max`, and a `since_ms` that is not earlier than in the previous call. Raises RefusedError
    with UNSUPPORTED_VERSION if the brokers do not support the request.
    """
    kept = _KEPT.setdefault(admin, _SharedFacts())
    async with kept.changes_lock:
        now_s, known = trio.current_time(), kept.changes
        if known is None or now_s - kept.changes_at_s > CHANGES_KEPT_S:
            found = await recent_changes(admin, since_ms=since_ms, count_max=count_max)
            kept.changes_at_s = now_s
        else:
            found = await later_changes(admin, known, since_ms=since_ms, count_max=count_max)
        kept.changes = found
        return found
