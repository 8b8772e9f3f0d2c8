"""OffsetDeleteRequest.

Generated from schemas/offset_delete.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message, Struct


class OffsetDeleteRequestPartition(Struct):
    __slots__ = ("partition_index",)

    def __init__(
        self,
        *,
        partition_index: int = 0,
    ) -> None:
        self.partition_index = partition_index


class OffsetDeleteRequestTopic(Struct):
    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetDeleteRequestPartition] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class OffsetDeleteRequest(Message):
    __slots__ = (
        "group_id",
        "topics",
    )
    API_KEY = 47
    VERSIONS = range(1)
    FLEXIBLE_FROM = None
    SCHEMA = "offset_delete"

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetDeleteRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
