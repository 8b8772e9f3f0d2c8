"""ConsumerGroupRegularExpressionValue.

Generated from schemas/consumer_group_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message


class ConsumerGroupRegularExpressionValue(Message):
    __slots__ = (
        "topics",
        "version",
        "timestamp",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "consumer_group_records"

    def __init__(
        self,
        *,
        topics: list[str] = EMPTY,
        version: int = 0,
        timestamp: int = 0,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.version = version
        self.timestamp = timestamp
