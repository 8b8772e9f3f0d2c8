"""ListPartitionReassignmentsRequest.

Generated from schemas/list_partition_reassignments.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message, Struct


class ListPartitionReassignmentsTopics(Struct):
    __slots__ = (
        "name",
        "partition_indexes",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class ListPartitionReassignmentsRequest(Message):
    __slots__ = (
        "timeout_ms",
        "topics",
    )
    API_KEY = 46
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "list_partition_reassignments"

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        topics: list[ListPartitionReassignmentsTopics] | None = None,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.topics = topics
