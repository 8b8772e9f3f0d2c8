"""ShareAcknowledgeRequest.

Generated from schemas/share_acknowledge.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class AcknowledgementBatch(Struct):
    __slots__ = (
        "first_offset",
        "last_offset",
        "acknowledge_types",
    )

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        acknowledge_types: list[int] = EMPTY,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.acknowledge_types = [] if acknowledge_types is EMPTY else acknowledge_types


class AcknowledgePartition(Struct):
    __slots__ = (
        "partition_index",
        "acknowledgement_batches",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        acknowledgement_batches: list[AcknowledgementBatch] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.acknowledgement_batches = (
            [] if acknowledgement_batches is EMPTY else acknowledgement_batches
        )


class AcknowledgeTopic(Struct):
    __slots__ = (
        "topic_id",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        partitions: list[AcknowledgePartition] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ShareAcknowledgeRequest(Message):
    __slots__ = (
        "group_id",
        "member_id",
        "share_session_epoch",
        "is_renew_ack",
        "topics",
    )
    API_KEY = 79
    VERSIONS = range(1, 3)
    FLEXIBLE_FROM = 1
    SCHEMA = "share_acknowledge"

    def __init__(
        self,
        *,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        is_renew_ack: bool = False,
        topics: list[AcknowledgeTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.share_session_epoch = share_session_epoch
        self.is_renew_ack = is_renew_ack
        self.topics = [] if topics is EMPTY else topics
