"""DeleteShareGroupOffsetsRequest.

Generated from schemas/delete_share_group_offsets.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message, Struct


class DeleteShareGroupOffsetsRequestTopic(Struct):
    __slots__ = ("topic_name",)

    def __init__(
        self,
        *,
        topic_name: str = "",
    ) -> None:
        self.topic_name = topic_name


class DeleteShareGroupOffsetsRequest(Message):
    __slots__ = (
        "group_id",
        "topics",
    )
    API_KEY = 92
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "delete_share_group_offsets"

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DeleteShareGroupOffsetsRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
