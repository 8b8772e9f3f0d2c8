"""AssignReplicasToDirsRequest.

Generated from schemas/assign_replicas_to_dirs.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct, fresh


class PartitionData(Struct):
    __slots__ = ("partition_index",)

    def __init__(
        self,
        *,
        partition_index: int = 0,
    ) -> None:
        self.partition_index = partition_index


class TopicData(Struct):
    __slots__ = (
        "topic_id",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = fresh(partitions)


class DirectoryData(Struct):
    __slots__ = (
        "id",
        "topics",
    )

    def __init__(
        self,
        *,
        id: UUID = ZERO_UUID,
        topics: list[TopicData] = EMPTY,
    ) -> None:
        self.id = id
        self.topics = fresh(topics)


class AssignReplicasToDirsRequest(Message):
    __slots__ = (
        "broker_id",
        "broker_epoch",
        "directories",
    )
    API_KEY = 73
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "assign_replicas_to_dirs"

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        directories: list[DirectoryData] = EMPTY,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.directories = fresh(directories)
