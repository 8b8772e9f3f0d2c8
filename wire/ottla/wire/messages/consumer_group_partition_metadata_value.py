"""ConsumerGroupPartitionMetadataValue.

Generated from schemas/consumer_group_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class PartitionMetadata(Struct):
    __slots__ = (
        "partition",
        "racks",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        racks: list[str] = EMPTY,
    ) -> None:
        self.partition = partition
        self.racks = [] if racks is EMPTY else racks


class TopicMetadata(Struct):
    __slots__ = (
        "topic_id",
        "topic_name",
        "num_partitions",
        "partition_metadata",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        topic_name: str = "",
        num_partitions: int = 0,
        partition_metadata: list[PartitionMetadata] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.num_partitions = num_partitions
        self.partition_metadata = [] if partition_metadata is EMPTY else partition_metadata


class ConsumerGroupPartitionMetadataValue(Message):
    __slots__ = ("topics",)
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "consumer_group_records"

    def __init__(
        self,
        *,
        topics: list[TopicMetadata] = EMPTY,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
