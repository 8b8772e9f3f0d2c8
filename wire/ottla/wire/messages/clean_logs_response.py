"""CleanLogsResponse.

Generated from schemas/clean_logs.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class CleanLogsPartitionResult(Struct):
    __slots__ = (
        "partition_index",
        "error_code",
        "error_message",
        "is_accepted",
        "note",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        is_accepted: bool = False,
        note: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.is_accepted = is_accepted
        self.note = note


class CleanLogsTopicResult(Struct):
    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[CleanLogsPartitionResult] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class CleanLogsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "topics",
    )
    API_KEY = 20005
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "clean_logs"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        topics: list[CleanLogsTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.topics = [] if topics is EMPTY else topics
