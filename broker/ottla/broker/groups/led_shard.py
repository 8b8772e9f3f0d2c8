"""A shard that is led here, and what is still to be done for it.  Pure."""

from collections.abc import Iterable
from typing import Any

from ottla.broker.groups.consumer_group import ConsumerGroup
from ottla.broker.groups.effects import Asker
from ottla.broker.groups.group_records import GroupRecord
from ottla.broker.groups.shard import GroupShard
from ottla.broker.replicas.partition import Partition
from ottla.model.ids import Epoch


class LedShard:
    """One partition of the offsets topic that is led here, and what is still to be done for it."""

    __slots__ = (
        "answers",
        "epoch",
        "failure",
        "is_active",
        "is_due",
        "load_at_ms",
        "partition",
        "shard",
        "writes",
    )

    def __init__(self, partition: Partition, shard: GroupShard) -> None:
        self.partition = partition
        self.epoch: Epoch = partition.leader_epoch
        self.shard = shard
        self.is_active = False
        """Its log has been replayed."""
        self.failure: str | None = None
        """Why its log cannot be replayed."""
        self.is_due = False
        self.load_at_ms = 0
        """Not before this is its log replayed."""
        self.writes: list[list[GroupRecord]] = []
        self.answers: list[tuple[Asker, Any]] = []


def figures_of(led: Iterable[LedShard], skipped_count: int) -> dict[str, float]:
    """Return how much is coordinated here."""
    every = list(led)
    shards = [each.shard for each in every if each.is_active]
    consumers = [
        group
        for shard in shards
        for group in shard.groups.values()
        if isinstance(group, ConsumerGroup)
    ]
    return {
        "groups": sum(len(shard.groups) for shard in shards),
        "groups.consumer": len(consumers),
        "groups.consumer.members": sum(len(group.members) for group in consumers),
        "groups.consumer.rebalances": sum(shard.consumer_rebalance_count for shard in shards),
        "groups.offsets": sum(len(shard.offsets) for shard in shards),
        "groups.offsets.pending": sum(len(shard.store.pending) for shard in shards),
        "groups.records.skipped": skipped_count,
        "groups.partitions.loading": sum(
            1 for each in every if not (each.is_active or each.failure)
        ),
    }
