"""ReadShareGroupStateResponse.

Generated from schemas/read_share_group_state.schema; never edited.
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


class PartitionResult(Struct):
    __slots__ = (
        "partition",
        "error_code",
        "error_message",
        "state_epoch",
        "start_offset",
        "state_batches",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        start_offset: int = 0,
        state_batches: list[StateBatch] = EMPTY,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.start_offset = start_offset
        self.state_batches = [] if state_batches is EMPTY else state_batches


class ReadStateResult(Struct):
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


class ReadShareGroupStateResponse(Message):
    __slots__ = ("results",)
    API_KEY = 84
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "read_share_group_state"

    def __init__(
        self,
        *,
        results: list[ReadStateResult] = EMPTY,
    ) -> None:
        self.results = [] if results is EMPTY else results
