"""DescribeCleanerRequest.

Generated from schemas/describe_cleaner.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message, Struct


class CleanerTopicWanted(Struct):
    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeCleanerRequest(Message):
    __slots__ = ("topics",)
    API_KEY = 20004
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_cleaner"

    def __init__(
        self,
        *,
        topics: list[CleanerTopicWanted] | None = None,
    ) -> None:
        self.topics = topics
