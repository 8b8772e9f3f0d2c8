"""DeleteTopicsRequest.

Generated from schemas/delete_topics.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class DeleteTopicState(Struct):
    __slots__ = (
        "name",
        "topic_id",
    )

    def __init__(
        self,
        *,
        name: str | None = None,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        self.name = name
        self.topic_id = topic_id


class DeleteTopicsRequest(Message):
    __slots__ = (
        "topics",
        "topic_names",
        "timeout_ms",
    )
    API_KEY = 20
    VERSIONS = range(1, 7)
    FLEXIBLE_FROM = 4
    SCHEMA = "delete_topics"

    def __init__(
        self,
        *,
        topics: list[DeleteTopicState] = EMPTY,
        topic_names: list[str] = EMPTY,
        timeout_ms: int = 0,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.topic_names = [] if topic_names is EMPTY else topic_names
        self.timeout_ms = timeout_ms
