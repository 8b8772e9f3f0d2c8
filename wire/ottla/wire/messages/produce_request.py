"""ProduceRequest.

Generated from schemas/produce.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Records, Struct


class PartitionProduceData(Struct):
    __slots__ = (
        "index",
        "records",
    )

    def __init__(
        self,
        *,
        index: int = 0,
        records: Records | None = None,
    ) -> None:
        self.index = index
        self.records = records


class TopicProduceData(Struct):
    __slots__ = (
        "name",
        "topic_id",
        "partition_data",
    )

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: UUID = ZERO_UUID,
        partition_data: list[PartitionProduceData] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_data = [] if partition_data is EMPTY else partition_data


class ProduceRequest(Message):
    __slots__ = (
        "transactional_id",
        "acks",
        "timeout_ms",
        "topic_data",
    )
    API_KEY = 0
    VERSIONS = range(3, 14)
    FLEXIBLE_FROM = 9
    SCHEMA = "produce"

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: list[TopicProduceData] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_data = [] if topic_data is EMPTY else topic_data
