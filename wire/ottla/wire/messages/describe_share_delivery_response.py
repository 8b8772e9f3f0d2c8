"""DescribeShareDeliveryResponse.

Generated from schemas/describe_share_delivery.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class DescribedShareDelivery(Struct):
    __slots__ = (
        "topic_name",
        "partition_index",
        "acquired_count",
        "ready_count",
        "delayed_count",
        "next_due_ms",
        "backoff_count",
        "next_backoff_ms",
        "key_count",
        "dead_letter_count",
        "is_spread",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
        acquired_count: int = 0,
        ready_count: int = 0,
        delayed_count: int = 0,
        next_due_ms: int = 0,
        backoff_count: int = 0,
        next_backoff_ms: int = 0,
        key_count: int = 0,
        dead_letter_count: int = 0,
        is_spread: bool = False,
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index
        self.acquired_count = acquired_count
        self.ready_count = ready_count
        self.delayed_count = delayed_count
        self.next_due_ms = next_due_ms
        self.backoff_count = backoff_count
        self.next_backoff_ms = next_backoff_ms
        self.key_count = key_count
        self.dead_letter_count = dead_letter_count
        self.is_spread = is_spread


class DescribeShareDeliveryResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "partitions",
    )
    API_KEY = 20009
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_share_delivery"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        partitions: list[DescribedShareDelivery] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.partitions = [] if partitions is EMPTY else partitions
