"""ReadShareGroupStateSummaryResponse.

Generated from schemas/read_share_group_state_summary.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class PartitionResult(Struct):
    __slots__ = (
        "partition",
        "error_code",
        "error_message",
        "state_epoch",
        "leader_epoch",
        "start_offset",
        "delivery_complete_count",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count


class ReadStateSummaryResult(Struct):
    __slots__ = (
        "topic_id",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        partitions: list[PartitionResult] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class ReadShareGroupStateSummaryResponse(Message):
    __slots__ = ("results",)
    API_KEY = 87
    VERSIONS = range(2)
    FLEXIBLE_FROM = 0
    SCHEMA = "read_share_group_state_summary"

    def __init__(
        self,
        *,
        results: list[ReadStateSummaryResult] = EMPTY,
    ) -> None:
        self.results = [] if results is EMPTY else results
