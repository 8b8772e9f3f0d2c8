"""ConsumerProtocolAssignment.

Generated from schemas/consumer_protocol.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class TopicPartition(Struct):
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


class ConsumerProtocolAssignment(Message):
    __slots__ = (
        "assigned_partitions",
        "user_data",
    )
    API_KEY = -1
    VERSIONS = range(4)
    FLEXIBLE_FROM = None
    SCHEMA = "consumer_protocol"

    def __init__(
        self,
        *,
        assigned_partitions: list[TopicPartition] = EMPTY,
        user_data: bytes | None = None,
    ) -> None:
        self.assigned_partitions = [] if assigned_partitions is EMPTY else assigned_partitions
        self.user_data = user_data
