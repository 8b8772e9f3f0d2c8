"""The committed offsets of the groups of one partition of `__consumer_offsets`.  Pure."""

from collections.abc import Iterable, Iterator
from uuid import UUID

from ottla.broker.groups.group_records import NO_EXPIRY, lasting_offset_value, offset_value
from ottla.model.ids import NO_EPOCH, ZERO_UUID
from ottla.wire.messages.offset_commit_value import OffsetCommitValue

TopicAndIndex = tuple[str, int]


class CommittedOffset:
    """How far a group has come in one partition.  It does not change."""

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
        """Return the value of its record as bytes."""
        if self.expire_timestamp_ms != NO_EXPIRY:
            return offset_value(self.as_value())
        return lasting_offset_value(
            self.offset, self.leader_epoch, self.metadata, self.commit_timestamp_ms, self.topic_id
        )

    def as_value(self) -> OffsetCommitValue:
        """Return it as the value of its record."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp_ms,
            expire_timestamp=self.expire_timestamp_ms,
            topic_id=self.topic_id,
        )


def committed_offset_of(value: OffsetCommitValue) -> CommittedOffset:
    """Return what a record says."""
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


UNSTABLE, PENDING = CommittedOffset(-1), CommittedOffset(-1)
"""Shown in place of an offset that an open transaction may change, and of one that none but open
transactions have committed.  They are told apart by identity."""


class OffsetTable:
    """Committed offsets by group, and there by (topic, partition)."""

    __slots__ = ("_by_group",)

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicAndIndex, CommittedOffset]] = {}

    def put(self, group: str, topic: str, index: int, offset: CommittedOffset) -> None:
        """Take a commit over any before it."""
        offsets = self._by_group.get(group)
        if offsets is None:
            offsets = self._by_group[group] = {}
        offsets[topic, index] = offset

    def remove(self, group: str, topic: str, index: int) -> None:
        """Forget a commit; one that is not there is fine."""
        offsets = self._by_group.get(group)
        if offsets is not None:
            offsets.pop((topic, index), None)
            if not offsets:
                del self._by_group[group]

    def find(self, group: str, topic: str, index: int) -> CommittedOffset | None:
        """Return one commit."""
        offsets = self._by_group.get(group)
        return None if offsets is None else offsets.get((topic, index))

    def of_group(self, group: str) -> dict[TopicAndIndex, CommittedOffset]:
        """Return a group's commits, to be read only."""
        return self._by_group.get(group, {})

    @property
    def group_ids(self) -> Iterable[str]:
        """The groups that have committed anything."""
        return self._by_group.keys()

    def has_group(self, group: str) -> bool:
        """Return whether the group has committed anything."""
        return group in self._by_group

    def __iter__(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        """Yield (group, topic, partition, offset) of every commit."""
        for group, offsets in self._by_group.items():
            for (topic, index), offset in offsets.items():
                yield group, topic, index, offset

    def __len__(self) -> int:
        """Return how many commits there are."""
        return sum(len(offsets) for offsets in self._by_group.values())
