"""AlterShareGroupOffsetsResponse.

Generated from schemas/alter_share_group_offsets.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class AlterShareGroupOffsetsResponsePartition(Struct):
    __slots__ = (
        "partition_index",
        "error_code",
        "error_message",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message


class AlterShareGroupOffsetsResponseTopic(Struct):
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
        partitions: list[AlterShareGroupOffsetsResponsePartition] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class AlterShareGroupOffsetsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "responses",
    )
    API_KEY = 91
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "alter_share_group_offsets"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        responses: list[AlterShareGroupOffsetsResponseTopic] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.responses = [] if responses is EMPTY else responses
