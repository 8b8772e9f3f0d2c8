"""Stores the committed offsets of the groups in one partition of `__consumer_offsets`. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.broker.groups.group_records import NO_EXPIRY, lasting_offset_value, offset_value
from ottla.model.ids import NO_EPOCH, ZERO_UUID
from ottla.wire.messages.offset_commit_value import OffsetCommitValue

TopicAndIndex = tuple[str, int]


class CommittedOffset:
    """Offset that a group has committed in one partition, with its metadata text and timestamp.
    Immutable."""

    __slots__ = (
        "commit_timestamp_ms",
        "expire_timestamp_ms",
        "leader_epoch",
        "metadata",
        "offset",
        "topic_id",
    )

    def __init__(
        self,
        offset: int,
        leader_epoch: int = NO_EPOCH,
        metadata: str = "",
        commit_timestamp_ms: int = -1,
        expire_timestamp_ms: int = NO_EXPIRY,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        self.topic_id = topic_id

    def __repr__(self) -> str:
        return f"CommittedOffset of {self.as_value()!r}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommittedOffset) and self.as_value() == other.as_value()

    __hash__ = None  # type: ignore[assignment]  # nothing is kept by it

    def encoded(self) -> bytes:
        """Return the encoded record value that stores this committed offset."""
        if self.expire_timestamp_ms != NO_EXPIRY:
            return offset_value(self.as_value())
        return lasting_offset_value(
            self.offset, self.leader_epoch, self.metadata, self.commit_timestamp_ms, self.topic_id
        )

    def as_value(self) -> OffsetCommitValue:
        """Return the record value that stores this committed offset, as a message object."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            expire_timestamp=self.expire_timestamp_ms,
            topic_id=self.topic_id,
        )


def committed_offset_of(value: OffsetCommitValue) -> CommittedOffset:
    """Return the committed offset that a record value of `__consumer_offsets` stores."""
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


UNSTABLE, PENDING = CommittedOffset(-1), CommittedOffset(-1)
"""Placeholders for the committed offset of a partition. UNSTABLE: an open transaction may
change the offset. PENDING: only open transactions have committed an offset. They are compared
by identity."""


class OffsetTable:
    """Committed offsets by group id, then by (topic name, partition index)."""

    __slots__ = ("_by_group",)

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicAndIndex, CommittedOffset]] = {}

    def put(self, group: str, topic: str, index: int, offset: CommittedOffset) -> None:
        """Set a group's committed offset in a partition."""
        offsets = self._by_group.get(group)
        if offsets is None:
            offsets = self._by_group[group] = {}
        offsets[topic, index] = offset

    def remove(self, group: str, topic: str, index: int) -> None:
        """Delete the offset that a group has committed in a partition, if it has one."""
        offsets = self._by_group.get(group)
        if offsets is not None:
            offsets.pop((topic, index), None)
            if not offsets:
                del self._by_group[group]

    def find(self, group: str, topic: str, index: int) -> CommittedOffset | None:
        """Return a group's committed offset in a partition, or None if the group has committed no
        offset there."""
        offsets = self._by_group.get(group)
        return None if offsets is None else offsets.get((topic, index))

    def of_group(self, group: str) -> dict[TopicAndIndex, CommittedOffset]:
        """Return the committed offsets of a group by (topic, partition). The caller must not modify
        the result."""
        return self._by_group.get(group, {})

    @property
    def group_ids(self) -> Iterable[str]:
        """Ids of the groups that have at least one committed offset."""
        return self._by_group.keys()

    def has_group(self, group: str) -> bool:
        """Return True if the group has at least one committed offset."""
        return group in self._by_group

    def __iter__(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        """Yield the group id, topic, partition and offset for every committed offset."""
        for group, offsets in self._by_group.items():
            for (topic, index), offset in offsets.items():
                yield group, topic, index, offset

    def __len__(self) -> int:
        """Return the number of committed offsets of all groups."""
        return sum(len(offsets) for offsets in self._by_group.values())


class LedOffsets(NamedTuple):
    """Committed offsets of the groups in a partition of `__consumer_offsets` that this broker
    leads."""

    partition: int
    leader_epoch: int
    table: OffsetTable
