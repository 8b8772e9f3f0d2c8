"""DeleteShareGroupStateResponse.

Generated from schemas/delete_share_group_state.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class PartitionResult(Struct):
    __slots__ = (
        "partition",
        "error_code",
        "error_message",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message


class DeleteStateResult(Struct):
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


class DeleteShareGroupStateResponse(Message):
    __slots__ = ("results",)
    API_KEY = 86
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "delete_share_group_state"

    def __init__(
        self,
        *,
        results: list[DeleteStateResult] = EMPTY,
    ) -> None:
        self.results = [] if results is EMPTY else results
