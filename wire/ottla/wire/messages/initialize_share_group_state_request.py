"""InitializeShareGroupStateRequest.

Generated from schemas/initialize_share_group_state.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class PartitionData(Struct):
    __slots__ = (
        "partition",
        "state_epoch",
        "start_offset",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        state_epoch: int = 0,
        start_offset: int = 0,
    ) -> None:
        self.partition = partition
        self.state_epoch = state_epoch
        self.start_offset = start_offset


class InitializeStateData(Struct):
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


class InitializeShareGroupStateRequest(Message):
    __slots__ = (
        "group_id",
        "topics",
    )
    API_KEY = 83
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "initialize_share_group_state"

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[InitializeStateData] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
