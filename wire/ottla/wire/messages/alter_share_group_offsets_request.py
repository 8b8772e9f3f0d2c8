"""AlterShareGroupOffsetsRequest.

Generated from schemas/alter_share_group_offsets.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class AlterShareGroupOffsetsRequestPartition(Struct):
    __slots__ = (
        "partition_index",
        "start_offset",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        start_offset: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset


class AlterShareGroupOffsetsRequestTopic(Struct):
    __slots__ = (
        "topic_name",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[AlterShareGroupOffsetsRequestPartition] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions


class AlterShareGroupOffsetsRequest(Message):
    __slots__ = (
        "group_id",
        "topics",
    )
    API_KEY = 91
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "alter_share_group_offsets"

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[AlterShareGroupOffsetsRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
