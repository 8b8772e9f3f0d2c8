"""ShareGroupStatePartitionMetadataValue.

Generated from schemas/share_group_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class TopicPartitionsInfo(Struct):
    __slots__ = (
        "topic_id",
        "topic_name",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        topic_name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class TopicInfo(Struct):
    __slots__ = (
        "topic_id",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        topic_name: str = "",
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name


class ShareGroupStatePartitionMetadataValue(Message):
    __slots__ = (
        "initializing_topics",
        "initialized_topics",
        "deleting_topics",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "share_group_records"

    def __init__(
        self,
        *,
        initializing_topics: list[TopicPartitionsInfo] = EMPTY,
        initialized_topics: list[TopicPartitionsInfo] = EMPTY,
        deleting_topics: list[TopicInfo] = EMPTY,
    ) -> None:
        self.initializing_topics = [] if initializing_topics is EMPTY else initializing_topics
        self.initialized_topics = [] if initialized_topics is EMPTY else initialized_topics
        self.deleting_topics = [] if deleting_topics is EMPTY else deleting_topics
