"""DeleteTopicsResponse.

Generated from schemas/delete_topics.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class DeletableTopicResult(Struct):
    __slots__ = (
        "name",
        "topic_id",
        "error_code",
        "error_message",
    )

    def __init__(
        self,
        *,
        name: str | None = "",
        topic_id: UUID = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message


class DeleteTopicsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "responses",
    )
    API_KEY = 20
    VERSIONS = range(1, 7)
    FLEXIBLE_FROM = 4
    SCHEMA = "delete_topics"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[DeletableTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses = [] if responses is EMPTY else responses
