"""Offsets of one topic that a group commits in one request. Pure."""

from uuid import UUID

from ottla.broker.groups.group_records import offset_key_start, tags_of
from ottla.wire.flat.flat_commit import CommitRow


class OffsetTopic:
    """Group and topic, with the encoded bytes that all records of the topic's committed offsets
    have in common."""

    __slots__ = ("group_id", "key_start", "name", "tags", "topic_id")

    def __init__(self, group_id: str, name: str, topic_id: UUID) -> None:
        self.group_id = group_id
        self.name = name
        self.topic_id = topic_id
        self.key_start = offset_key_start(group_id, name)
        """Encoded start of the record key of each committed offset in the topic: all fields before
        the partition."""
        self.tags = tags_of(topic_id)
        """Encoded tagged fields at the end of the record value of each committed offset in the
        topic."""


class TopicCommit:
    """Offsets that a group commits for existing partitions of one topic."""

    __slots__ = ("rows", "topic")

    def __init__(self, topic: OffsetTopic, rows: list[CommitRow]) -> None:
        self.topic = topic
        self.rows = rows
