"""Finds the partitions of deleted topics that still have objects in the object store. Pure.

The broker that led a partition deletes its copies when the topic is deleted. If this broker dies
before the end, or if no replica was running, the copies remain. In Kafka they remain permanently.
"""

from collections.abc import Container
from typing import NamedTuple
from uuid import UUID

from ottla.broker.tier.orphans import ORPHAN_AGE_MS
from ottla.model.ids import TopicIdPartition
from ottla.storage.tier.object_names import parse_object_key
from ottla.storage.tier.store_seam import ObjectEntry

PARTITIONS_MAX = 10_000
"""Maximum number of partitions that one search collects. A later search finds the remaining
partitions."""


class DeletedTopicPartition(NamedTuple):
    """A partition of a topic that does not exist, but that still has objects in the store."""

    key: TopicIdPartition
    topic: str
    """Name of the deleted topic."""


class DeletedTopicScan:
    """Collects the partitions of deleted topics from a listing of the store."""

    def __init__(self, topic_ids: Container[UUID]) -> None:
        """Create an empty scan. `topic_ids` are the ids of the topics that exist when the scan
        begins."""
        self._topic_ids = topic_ids
        self._newest_ms: dict[DeletedTopicPartition, int] = {}

    def add(self, entry: ObjectEntry) -> None:
        """Add an object of the listing. Objects of existing topics, and objects that are not part
        of a segment, are ignored."""
        name = parse_object_key(entry.key)
        if name is None or name.names.topic_id in self._topic_ids:
            return
        names = name.names
        partition = DeletedTopicPartition(
            TopicIdPartition(names.topic_id, names.partition), names.topic
        )
        if partition in self._newest_ms or len(self._newest_ms) < PARTITIONS_MAX:
            newest_ms = self._newest_ms.get(partition, 0)
            self._newest_ms[partition] = max(newest_ms, entry.modified_ms)

    def partitions(
        self, topic_ids: Container[UUID], now_ms: int, *, age_ms: int | None = None
    ) -> list[DeletedTopicPartition]:
        """Return the partitions of deleted topics whose newest object is at least `age_ms`
        milliseconds old, by default ORPHAN_AGE_MS.

        `topic_ids` are the ids of the topics that exist at the end of the listing. The minimum age
        protects new topics that this broker does not know yet.
        """
        age_ms = ORPHAN_AGE_MS if age_ms is None else age_ms
        return [
            partition
            for partition, newest_ms in sorted(self._newest_ms.items())
            if partition.key.topic_id not in topic_ids and now_ms - newest_ms >= age_ms
        ]
