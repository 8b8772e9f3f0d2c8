"""DescribeShareGroupOffsetsResponse.

Generated from schemas/describe_share_group_offsets.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class DescribeShareGroupOffsetsResponsePartition(Struct):
    __slots__ = (
        "partition_index",
        "start_offset",
        "leader_epoch",
        "lag",
        "error_code",
        "error_message",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        start_offset: int = 0,
        leader_epoch: int = 0,
        lag: int = -1,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset
        self.leader_epoch = leader_epoch
        self.lag = lag
        self.error_code = error_code
        self.error_message = error_message


class DescribeShareGroupOffsetsResponseTopic(Struct):
    __slots__ = (
        "topic_name",
        "topic_id",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: UUID = ZERO_UUID,
        partitions: list[DescribeShareGroupOffsetsResponsePartition] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeShareGroupOffsetsResponseGroup(Struct):
    __slots__ = (
        "group_id",
        "topics",
        "error_code",
        "error_message",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsResponseTopic] = EMPTY,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
        self.error_code = error_code
        self.error_message = error_message


class DescribeShareGroupOffsetsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "groups",
    )
    API_KEY = 90
    VERSIONS = range(2)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_share_group_offsets"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[DescribeShareGroupOffsetsResponseGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups = [] if groups is EMPTY else groups
