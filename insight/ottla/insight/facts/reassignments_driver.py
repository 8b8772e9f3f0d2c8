"""Reads from brokers the reassignments in progress and the in-sync replicas of partitions."""

from collections.abc import Collection

from ottla.client.admin import Admin
from ottla.insight.facts.replica_assignments import OngoingMove
from ottla.model.ids import TopicPartition


async def in_sync_of(
    admin: Admin, topics: Collection[str]
) -> dict[TopicPartition, tuple[int, ...] | None]:
    """Return the in-sync replicas of each partition of the topics, as broker ids. The value is None
    if the partition has no leader."""
    return {
        TopicPartition(topic.name or "", row.partition_index): (
            None if row.leader_id < 0 else tuple(row.isr_nodes)
        )
        for topic in (await admin.cluster.metadata(topics)).topics
        for row in topic.partitions
    }


async def ongoing_of(admin: Admin, names: Collection[str]) -> list[OngoingMove]:
    """Return the ongoing reassignments of the named topics, or of all topics if `names` is
    empty."""
    found = [
        OngoingMove(at, move.replicas, move.adding, move.removing)
        for at, move in (await admin.list_reassignments()).items()
        if not names or at.topic in names
    ]
    return sorted(found, key=lambda one: one.at)
