"""ElectLeadersRequest.

Generated from schemas/elect_leaders.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class TopicPartitions(Struct):
    __slots__ = (
        "topic",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions


class ElectLeadersRequest(Message):
    __slots__ = (
        "election_type",
        "topic_partitions",
        "timeout_ms",
    )
    API_KEY = 43
    VERSIONS = range(3)
    FLEXIBLE_FROM = 2
    SCHEMA = "elect_leaders"

    def __init__(
        self,
        *,
        election_type: int = 0,
        topic_partitions: list[TopicPartitions] | None = EMPTY,
        timeout_ms: int = 60000,
    ) -> None:
        self.election_type = election_type
        self.topic_partitions = [] if topic_partitions is EMPTY else topic_partitions
        self.timeout_ms = timeout_ms
