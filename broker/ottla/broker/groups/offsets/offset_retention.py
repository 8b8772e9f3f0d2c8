"""Deletes expired committed offsets (KIP-211), and groups without offsets. Pure.

All functions run in steps, since a shard may have hundreds of thousands of offsets. State may
change between two steps, so a value that was read before a yield is read again after it.
"""

from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.group_records import NO_EXPIRY
from ottla.broker.groups.offsets.offset_store import OffsetStore
from ottla.node.network.steps import StepPace


class OffsetRetention:
    """Deletes the expired groups and offsets of one shard of the group coordinator."""

    def __init__(
        self,
        groups: Mapping[str, CoordinatedGroup],
        offsets: OffsetStore,
        *,
        retention_ms: int,
        drop_group: Callable[[CoordinatedGroup], None],
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._retention_ms = retention_ms
        self._drop_group = drop_group

    def drop_without_topic(self, exists: Callable[[str, UUID], bool]) -> Iterator[None]:
        """Delete the committed offsets of topics that do not exist, or exist under another id."""
        pace = StepPace()
        for group_id in list(self._offsets.group_ids):
            for topic, index in self._offsets.places_of(group_id):
                topic_id = self._offsets.topic_id_of(group_id, topic, index)
                if topic_id is not None and not exists(topic, topic_id):
                    self._offsets.drop(group_id, topic, index)
                if pace.is_due():
                    yield

    def expire(self, wall_ms: int) -> Iterator[None]:
        """Delete committed offsets that were unused for the retention time, and groups without
        offsets."""
        pace = StepPace()
        for group in list(self._groups.values()):
            if pace.is_due(1 + len(self._offsets.committed.of_group(group.group_id))):
                yield
            if self._groups.get(group.group_id) is not group:
                continue
            self._expire_of(group, wall_ms)
            if group.is_unused and not self._offsets.has_group(group.group_id):
                self._drop_group(group)

    def _expire_of(self, group: CoordinatedGroup, wall_ms: int) -> None:
        """Delete the expired committed offsets of one group.

        While the group has members, only offsets of topics without subscribers expire. For an empty
        classic group that once had members, the retention counts from the time when its last member
        left (KIP-211).
        """
        used, emptied_ms = group.used_topics(), group.emptied_ms
        if used is None:
            return
        committed = self._offsets.committed.of_group(group.group_id)
        for (topic, index), offset in list(committed.items()):
            expires_ms = offset.expire_timestamp_ms
            if expires_ms == NO_EXPIRY:
                unused_since_ms = max(emptied_ms, offset.commit_timestamp_ms)
                expires_ms = unused_since_ms + self._retention_ms
            is_pending = self._offsets.pending.is_pending(group.group_id, topic, index)
            if topic not in used and wall_ms >= expires_ms and not is_pending:
                self._offsets.drop(group.group_id, topic, index)
