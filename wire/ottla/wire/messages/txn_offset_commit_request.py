"""TxnOffsetCommitRequest.

Generated from schemas/txn_offset_commit.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class TxnOffsetCommitRequestPartition(Struct):
    __slots__ = (
        "partition_index",
        "committed_offset",
        "committed_leader_epoch",
        "committed_metadata",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.committed_metadata = committed_metadata


class TxnOffsetCommitRequestTopic(Struct):
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
        partitions: list[TxnOffsetCommitRequestPartition] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class TxnOffsetCommitRequest(Message):
    __slots__ = (
        "transactional_id",
        "group_id",
        "producer_id",
        "producer_epoch",
        "generation_id_or_member_epoch",
        "member_id",
        "group_instance_id",
        "topics",
    )
    API_KEY = 28
    VERSIONS = range(7)
    FLEXIBLE_FROM = 3
    SCHEMA = "txn_offset_commit"

    def __init__(
        self,
        *,
        transactional_id: str = "",
        group_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        generation_id_or_member_epoch: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        topics: list[TxnOffsetCommitRequestTopic] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id
        self.group_id = group_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.generation_id_or_member_epoch = generation_id_or_member_epoch
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.topics = [] if topics is EMPTY else topics
