"""DescribeShareRecordsResponse.

Generated from schemas/describe_share_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class DescribedShareRange(Struct):
    __slots__ = (
        "first_offset",
        "last_offset",
        "state",
        "delivery_count",
        "member_id",
        "lock_end_ms",
        "is_being_stored",
    )

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        state: int = 0,
        delivery_count: int = 0,
        member_id: str = "",
        lock_end_ms: int = 0,
        is_being_stored: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_end_ms = lock_end_ms
        self.is_being_stored = is_being_stored


class DescribeShareRecordsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "next_offset",
        "ranges",
    )
    API_KEY = 20010
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_share_records"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        next_offset: int = 0,
        ranges: list[DescribedShareRange] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.next_offset = next_offset
        self.ranges = [] if ranges is EMPTY else ranges
