"""Numbers of groups, members and offsets that one broker coordinates. Pure."""

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from ottla.broker.coordinators.effects import EventWrite
from ottla.broker.coordinators.led_shard import LedShard
from ottla.broker.groups.consumer.consumer_group import CONSUMER
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.share.share_group import SHARE
from ottla.model.quotas.rates import RateBetweenLooks

LedGroups: TypeAlias = LedShard[GroupShard, EventWrite]


RATE_SPAN_MS = 60_000
"""Period in milliseconds over which the rates of rebalances are measured, as in Kafka."""


class Rebalances:
    """Counts and recent rates of rebalances of consumer groups and share groups that this broker
    has coordinated since its start. A rebalance is an increment of a group's epoch."""

    def __init__(self, now_ms: int) -> None:
        self._ended: Counter[str] = Counter()
        self._rates = {
            kind: RateBetweenLooks(span_ms=RATE_SPAN_MS, begun_ms=now_ms)
            for kind in (CONSUMER, SHARE)
        }

    def keep(self, shard: GroupShard) -> None:
        """Add the rebalances of a shard to the counts when this broker stops coordinating the
        shard."""
        self._ended.update(_rebalances_of(shard))

    def counts(self, shards: Iterable[GroupShard]) -> dict[str, int]:
        """Return the number of rebalances by protocol of the groups. `shards` are all shards that
        this broker currently coordinates."""
        counts = Counter(self._ended)
        for shard in shards:
            counts.update(_rebalances_of(shard))
        return {kind: counts[kind] for kind in self._rates}

    def rates(self, counts: dict[str, int], now_ms: int) -> dict[str, float]:
        """Return the rebalances per second in the last minute, by group protocol. `counts` contains
        the current totals from the method `counts`."""
        return {kind: rate.per_second(counts[kind], now_ms) for kind, rate in self._rates.items()}


def _rebalances_of(shard: GroupShard) -> dict[str, int]:
    return {CONSUMER: shard.consumers.rebalance_count, SHARE: shard.shares.rebalance_count}


def figures_of(
    led: Iterable[LedGroups], skipped_count: int, rebalances: Rebalances
) -> dict[str, float]:
    """Return the numbers of groups, members and committed offsets on this broker. Also returns the
    number of partitions of `__consumer_offsets` that are still loading."""
    every = list(led)
    shards = [each.shard for each in every if each.is_active]
    consumers = [group for shard in shards for group in shard.consumers.all()]
    shares = [group for shard in shards for group in shard.shares.all()]
    counts = rebalances.counts(each.shard for each in every)
    return {
        "groups": sum(len(shard.groups) for shard in shards),
        "groups.consumer": len(consumers),
        "groups.consumer.members": sum(len(group.members) for group in consumers),
        "groups.consumer.rebalances": counts[CONSUMER],
        "groups.share": len(shares),
        "groups.share.members": sum(len(group.members) for group in shares),
        "groups.share.rebalances": counts[SHARE],
        "groups.offsets": sum(len(shard.offsets) for shard in shards),
        "groups.offsets.pending": sum(len(shard.store.pending) for shard in shards),
        "groups.records.skipped": skipped_count,
        "groups.partitions.loading": sum(each.is_loading for each in every),
    }
