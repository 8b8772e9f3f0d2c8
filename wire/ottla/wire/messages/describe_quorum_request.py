"""DescribeQuorumRequest.

Generated from schemas/describe_quorum.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition_index",)

    def __init__(
        self,
        *,
        partition_index: int = 0,
    ) -> None:
        self.partition_index = partition_index


class TopicData(Struct):
    __slots__ = (
        "topic_name",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeQuorumRequest(Message):
    __slots__ = ("topics",)
    API_KEY = 55
    VERSIONS = range(3)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_quorum"

    def __init__(
        self,
        *,
        topics: list[TopicData] = EMPTY,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
