"""Reads the retention of topics and the newest timestamps of their records."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigEntry, ConfigResource
from ottla.client.network.background import lone_errors
from ottla.model.ids import TopicPartition
from ottla.model.settings.resources import ConfigKind

MAX_TIMESTAMP = -3
"""Special timestamp in a ListOffsets request that selects the record with the largest timestamp
(KIP-734)."""
TOPICS_AT_ONCE = 100
REQUESTS_AT_ONCE = 16
POLICY, RETENTION_MS = "cleanup.policy", "retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAges:
    """Retention settings of one topic, and the timestamp of the newest record of each partition."""

    topic: str
    cleanup_policy: str
    retention_ms: int
    newest_ms: Mapping[int, int]

    @property
    def is_deleted_by_age(self) -> bool:
        """True if the topic's records are deleted because of their age."""
        return "delete" in self.cleanup_policy and self.retention_ms >= 0


async def topic_ages(admin: Admin) -> AsyncGenerator[Sequence[TopicAges], None]:
    """Yield the retention and the ages of all topics, TOPICS_AT_ONCE at a time, in order of names.
    The timestamps of topics that are not deleted by age are not read."""
    metadata = await admin.cluster.metadata()
    partitions = {
        one.name: [
            TopicPartition(one.name, row.partition_index)
            for row in one.partitions
            if row.leader_id >= 0
        ]
        for one in metadata.topics
        if one.name and not one.is_internal
    }
    names = sorted(partitions)
    for begin in range(0, len(names), TOPICS_AT_ONCE):
        settings = await _settings(admin, names[begin : begin + TOPICS_AT_ONCE])
        wanted = [at for one in settings if one.is_deleted_by_age for at in partitions[one.topic]]
        found = await admin.list_offsets(dict.fromkeys(wanted, MAX_TIMESTAMP)) if wanted else {}
        newest: dict[str, dict[int, int]] = {}
        for at, offset in found.items():
            newest.setdefault(at.topic, {})[at.partition] = offset.timestamp_ms
        yield [
            TopicAges(
                topic=one.topic,
                cleanup_policy=one.cleanup_policy,
                retention_ms=one.retention_ms,
                newest_ms=newest.get(one.topic, {}),
            )
            for one in settings
        ]


async def _settings(admin: Admin, names: Sequence[str]) -> list[TopicAges]:
    """Return the retention settings of topics, without timestamps."""
    found: dict[str, dict[str, ConfigEntry]] = {}
    limit = trio.CapacityLimiter(REQUESTS_AT_ONCE)

    async def ask(name: str) -> None:
        resource = ConfigResource(ConfigKind.TOPIC, name)
        async with limit:
            found[name] = await admin.describe_configs(resource, keys=(POLICY, RETENTION_MS))

    with lone_errors():
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(ask, name)
    return [
        TopicAges(
            topic=name,
            cleanup_policy=found[name][POLICY].value or "",
            retention_ms=int(found[name][RETENTION_MS].value or -1),
            newest_ms={},
        )
        for name in names
    ]
