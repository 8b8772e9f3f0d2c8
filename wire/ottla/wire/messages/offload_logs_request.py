"""OffloadLogsRequest.

Generated from schemas/offload_logs.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class TopicToOffload(Struct):
    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class OffloadLogsRequest(Message):
    __slots__ = (
        "validate_only",
        "topics",
    )
    API_KEY = 20011
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "offload_logs"

    def __init__(
        self,
        *,
        validate_only: bool = False,
        topics: list[TopicToOffload] = EMPTY,
    ) -> None:
        self.validate_only = validate_only
        self.topics = [] if topics is EMPTY else topics
