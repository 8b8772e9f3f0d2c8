"""AlterPartitionRequest.

Generated from schemas/alter_partition.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct, fresh


class BrokerState(Struct):
    __slots__ = (
        "broker_id",
        "broker_epoch",
    )

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


class PartitionData(Struct):
    __slots__ = (
        "partition_index",
        "leader_epoch",
        "new_isr",
        "new_isr_with_epochs",
        "leader_recovery_state",
        "partition_epoch",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        leader_epoch: int = 0,
        new_isr: list[int] = EMPTY,
        new_isr_with_epochs: list[BrokerState] = EMPTY,
        leader_recovery_state: int = 0,
        partition_epoch: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.leader_epoch = leader_epoch
        self.new_isr = fresh(new_isr)
        self.new_isr_with_epochs = fresh(new_isr_with_epochs)
        self.leader_recovery_state = leader_recovery_state
        self.partition_epoch = partition_epoch


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


class AlterPartitionRequest(Message):
    __slots__ = (
        "broker_id",
        "broker_epoch",
        "topics",
    )
    API_KEY = 56
    VERSIONS = range(2, 4)
    FLEXIBLE_FROM = 2
    SCHEMA = "alter_partition"

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        topics: list[TopicData] = EMPTY,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.topics = fresh(topics)
