"""CleanLogsRequest.

Generated from schemas/clean_logs.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message, Struct


class TopicToClean(Struct):
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


class CleanLogsRequest(Message):
    __slots__ = (
        "retry",
        "topics",
    )
    API_KEY = 20005
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "clean_logs"

    def __init__(
        self,
        *,
        retry: bool = False,
        topics: list[TopicToClean] | None = None,
    ) -> None:
        self.retry = retry
        self.topics = topics
