"""Who commits offsets of which topic: what the requests of one member have in common.  Pure."""

from typing import TypeAlias

from ottla.broker.groups.group_records import offset_key_start, tags_of
from ottla.metadata.image import Topic
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest

CommitRow: TypeAlias = tuple[int, int, int, str]
"""A partition, the offset, the epoch of its leader, and metadata."""


class TopicCommitter:
    """One member of a group, or a group without members, and one topic, which exists."""

    __slots__ = ("group_id", "key_start", "request", "tags", "topic", "topic_id", "topic_name")

    def __init__(self, request: OffsetCommitRequest, topic: Topic) -> None:
        """`request` says who commits; its topics are not looked at."""
        self.request = request
        self.topic = topic
        self.group_id: str = request.group_id
        self.topic_name: str = topic.name
        self.topic_id = topic.id
        self.key_start = offset_key_start(request.group_id, topic.name)
        """The key of each offset, besides its partition."""
        self.tags = tags_of(topic.id)
        """The end of each offset's value."""


class RowsCommit:
    """A commit of offsets of one topic, none of which has an expiry of its own."""

    __slots__ = ("committer", "rows", "version")

    def __init__(self, committer: TopicCommitter, rows: list[CommitRow], version: int) -> None:
        self.committer = committer
        self.rows = rows
        self.version = version
