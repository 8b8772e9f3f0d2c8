"""A shard that is led here, and what is still to be done for it.  Pure."""

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ottla.broker.groups.consumer_group import ConsumerGroup
from ottla.broker.groups.effects import Asker
from ottla.broker.groups.group_records import GroupRecord
from ottla.broker.groups.shard import GroupShard
from ottla.broker.replicas.partition import Partition
from ottla.model.ids import Epoch


class ReplayedShard(Protocol):
    """What the log of a partition is read back into."""

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Take what a record says.  Raises CorruptDataError if it says nothing."""
        ...


ShardT = TypeVar("ShardT", bound=ReplayedShard)
WriteT = TypeVar("WriteT")


class LedShard(Generic[ShardT, WriteT]):
    """One partition of a coordinator's topic that is led here, and what is to be done for it."""

    __slots__ = (
        "answers",
        "delay_reason",
        "epoch",
        "failure",
        "is_active",
        "is_due",
        "load_at_ms",
        "load_ms",
        "partition",
        "shard",
        "writes",
    )

    def __init__(self, partition: Partition, shard: ShardT) -> None:
        self.partition = partition
        self.epoch: Epoch = partition.leader_epoch
        """The coordinator epoch."""
        self.shard = shard
        self.is_active = False
        """Whether its log has been replayed, and its requests are served."""
        self.failure: str | None = None
        """Why its log cannot be replayed."""
        self.is_due = False
        """Whether it waits for its turn to append."""
        self.load_at_ms = 0
        """When its log is replayed, at the earliest."""
        self.delay_reason: str | None = None
        """Why that failed before, where it may yet succeed."""
        self.load_ms: int | None = None
        """How long that took."""
        self.writes: list[WriteT] = []
        self.answers: list[tuple[Asker, Any]] = []
        """Given when all that is written by then is committed."""

    @property
    def is_loading(self) -> bool:
        """Whether it serves nothing yet."""
        return not (self.is_active or self.failure)


LedGroups: TypeAlias = LedShard[GroupShard, list[GroupRecord]]


def figures_of(led: Iterable[LedGroups], skipped_count: int) -> dict[str, float]:
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
        "groups.partitions.loading": sum(each.is_loading for each in every),
    }
