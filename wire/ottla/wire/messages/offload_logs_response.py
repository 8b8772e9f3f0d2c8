"""OffloadLogsResponse.

Generated from schemas/offload_logs.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class OffloadLogsPartitionResult(Struct):
    __slots__ = (
        "partition_index",
        "error_code",
        "error_message",
        "segment_count",
        "size_bytes",
        "local_start_offset",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        segment_count: int = 0,
        size_bytes: int = 0,
        local_start_offset: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.segment_count = segment_count
        self.size_bytes = size_bytes
        self.local_start_offset = local_start_offset


class OffloadLogsTopicResult(Struct):
    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffloadLogsPartitionResult] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class OffloadLogsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "topics",
    )
    API_KEY = 20011
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "offload_logs"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        topics: list[OffloadLogsTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.topics = [] if topics is EMPTY else topics
