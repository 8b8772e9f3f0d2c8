"""Counts the groups, members and offsets that one broker coordinates. Pure."""

from collections.abc import Iterable
from typing import TypeAlias

from ottla.broker.coordinators.effects import EventWrite
from ottla.broker.coordinators.led_shard import LedShard
from ottla.broker.groups.shard import GroupShard

LedGroups: TypeAlias = LedShard[GroupShard, EventWrite]


def figures_of(led: Iterable[LedGroups], skipped_count: int) -> dict[str, float]:
    """Return the numbers of groups, members and offsets on this broker, and the number of
    partitions of `__consumer_offsets` that are being loaded."""
    every = list(led)
    shards = [each.shard for each in every if each.is_active]
    consumers = [group for shard in shards for group in shard.consumers.all()]
    shares = [group for shard in shards for group in shard.shares.all()]
    return {
        "groups": sum(len(shard.groups) for shard in shards),
        "groups.consumer": len(consumers),
        "groups.consumer.members": sum(len(group.members) for group in consumers),
        "groups.consumer.rebalances": sum(shard.consumers.rebalance_count for shard in shards),
        "groups.share": len(shares),
        "groups.share.members": sum(len(group.members) for group in shares),
        "groups.share.rebalances": sum(shard.shares.rebalance_count for shard in shards),
        "groups.offsets": sum(len(shard.offsets) for shard in shards),
        "groups.offsets.pending": sum(len(shard.store.pending) for shard in shards),
        "groups.records.skipped": skipped_count,
        "groups.partitions.loading": sum(each.is_loading for each in every),
    }
