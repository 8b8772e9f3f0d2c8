"""How long committed offsets are kept (KIP-211), and groups that have nothing else.  Pure.

All of it is done in steps: a shard may hold hundreds of thousands of offsets.  Whatever was read
before a yield is read again after it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias
from uuid import UUID

from ottla.broker.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.groups.consumer_group import ConsumerGroup
from ottla.broker.groups.group_records import NO_EXPIRY
from ottla.broker.groups.offset_store import OffsetStore
from ottla.broker.network.steps import StepPace

Group: TypeAlias = ClassicGroup | ConsumerGroup


class OffsetRetention:
    """The rule over the groups and offsets of one shard; owns neither."""

    def __init__(
        self,
        groups: Mapping[str, Group],
        offsets: OffsetStore,
        *,
        retention_ms: int,
        drop_group: Callable[[Group], None],
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._retention_ms = retention_ms
        self._drop_group = drop_group

    def drop_without_topic(self, exists: Callable[[str, UUID], bool]) -> Iterator[None]:
        """Forget what was committed for topics that are no more, or are others by the same name."""
        pace = StepPace()
        for group_id in list(self._offsets.group_ids):
            for topic, index in self._offsets.places_of(group_id):
                topic_id = self._offsets.topic_id_of(group_id, topic, index)
                if topic_id is not None and not exists(topic, topic_id):
                    self._offsets.drop(group_id, topic, index)
                if pace.is_due():
                    yield

    def expire(self, wall_ms: int) -> Iterator[None]:
        """Forget offsets that nobody has used for the retention, and groups left with nothing."""
        pace = StepPace()
        for group in list(self._groups.values()):
            if pace.is_due(1 + len(self._offsets.committed.of_group(group.group_id))):
                yield
            if self._groups.get(group.group_id) is not group:
                continue
            self._expire_of(group, wall_ms)
            if group.is_empty and not (
                (isinstance(group, ClassicGroup) and group.pending_joins)
                or self._offsets.has_group(group.group_id)
            ):
                self._drop_group(group)

    def _expire_of(self, group: Group, wall_ms: int) -> None:
        """Offsets are kept while there are members, but for topics they subscribe no longer.

        An empty classic group's age from when its last member left, where there were any (KIP-211).
        """
        used = frozenset[str]()
        emptied_ms = -1
        if isinstance(group, ConsumerGroup):
            used = group.subscribed_topics()
        elif group.state is not GroupState.EMPTY:
            subscribed = group.subscribed_topics() if group.state is GroupState.STABLE else None
            if subscribed is None:
                return
            used = subscribed
        elif group.protocol_type is not None:
            emptied_ms = group.state_timestamp_ms
        committed = self._offsets.committed.of_group(group.group_id)
        for (topic, index), offset in list(committed.items()):
            expires_ms = offset.expire_timestamp_ms
            if expires_ms == NO_EXPIRY:
                unused_since_ms = max(emptied_ms, offset.commit_timestamp_ms)
                expires_ms = unused_since_ms + self._retention_ms
            is_pending = self._offsets.pending.is_pending(group.group_id, topic, index)
            if topic not in used and wall_ms >= expires_ms and not is_pending:
                self._offsets.drop(group.group_id, topic, index)
