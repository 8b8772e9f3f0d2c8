"""TxnOffsetCommitResponse.

Generated from schemas/txn_offset_commit.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class TxnOffsetCommitResponsePartition(Struct):
    __slots__ = (
        "partition_index",
        "error_code",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class TxnOffsetCommitResponseTopic(Struct):
    __slots__ = (
        "name",
        "topic_id",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: UUID = ZERO_UUID,
        partitions: list[TxnOffsetCommitResponsePartition] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class TxnOffsetCommitResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "topics",
    )
    API_KEY = 28
    VERSIONS = range(7)
    FLEXIBLE_FROM = 3
    SCHEMA = "txn_offset_commit"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[TxnOffsetCommitResponseTopic] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
