"""DescribeLogDirsRequest.

Generated from schemas/describe_log_dirs.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class DescribableLogDirTopic(Struct):
    __slots__ = (
        "topic",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeLogDirsRequest(Message):
    __slots__ = ("topics",)
    API_KEY = 35
    VERSIONS = range(1, 6)
    FLEXIBLE_FROM = 2
    SCHEMA = "describe_log_dirs"

    def __init__(
        self,
        *,
        topics: list[DescribableLogDirTopic] | None = EMPTY,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
