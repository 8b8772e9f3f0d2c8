"""WriteShareGroupStateRequest.

Generated from schemas/write_share_group_state.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class StateBatch(Struct):
    __slots__ = (
        "first_offset",
        "last_offset",
        "delivery_state",
        "delivery_count",
    )

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count


class PartitionData(Struct):
    __slots__ = (
        "partition",
        "state_epoch",
        "leader_epoch",
        "start_offset",
        "delivery_complete_count",
        "state_batches",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        state_batches: list[StateBatch] = EMPTY,
    ) -> None:
        self.partition = partition
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.state_batches = [] if state_batches is EMPTY else state_batches


class WriteStateData(Struct):
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
        self.partitions = [] if partitions is EMPTY else partitions


class WriteShareGroupStateRequest(Message):
    __slots__ = (
        "group_id",
        "topics",
    )
    API_KEY = 85
    VERSIONS = range(2)
    FLEXIBLE_FROM = 0
    SCHEMA = "write_share_group_state"

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[WriteStateData] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
