"""DescribeShareGroupOffsetsRequest.

Generated from schemas/describe_share_group_offsets.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class DescribeShareGroupOffsetsRequestTopic(Struct):
    __slots__ = (
        "topic_name",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeShareGroupOffsetsRequestGroup(Struct):
    __slots__ = (
        "group_id",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics


class DescribeShareGroupOffsetsRequest(Message):
    __slots__ = ("groups",)
    API_KEY = 90
    VERSIONS = range(2)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_share_group_offsets"

    def __init__(
        self,
        *,
        groups: list[DescribeShareGroupOffsetsRequestGroup] = EMPTY,
    ) -> None:
        self.groups = [] if groups is EMPTY else groups
