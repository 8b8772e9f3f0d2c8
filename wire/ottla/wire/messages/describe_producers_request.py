"""DescribeProducersRequest.

Generated from schemas/describe_producers.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message, Struct


class TopicRequest(Struct):
    __slots__ = (
        "name",
        "partition_indexes",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class DescribeProducersRequest(Message):
    __slots__ = ("topics",)
    API_KEY = 61
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_producers"

    def __init__(
        self,
        *,
        topics: list[TopicRequest] = EMPTY,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
