"""DescribeTopicPartitionsRequest.

Generated from schemas/describe_topic_partitions.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class TopicRequest(Struct):
    __slots__ = ("name",)

    def __init__(
        self,
        *,
        name: str = "",
    ) -> None:
        self.name = name


class Cursor(Struct):
    __slots__ = (
        "topic_name",
        "partition_index",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index


class DescribeTopicPartitionsRequest(Message):
    __slots__ = (
        "topics",
        "response_partition_limit",
        "cursor",
    )
    API_KEY = 75
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_topic_partitions"

    def __init__(
        self,
        *,
        topics: list[TopicRequest] = EMPTY,
        response_partition_limit: int = 2000,
        cursor: Cursor | None = None,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.response_partition_limit = response_partition_limit
        self.cursor = cursor
