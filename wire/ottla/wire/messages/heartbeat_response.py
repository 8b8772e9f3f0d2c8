"""HeartbeatResponse.

Generated from schemas/heartbeat.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class HeartbeatResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
    )
    API_KEY = 12
    VERSIONS = range(5)
    FLEXIBLE_FROM = 4
    SCHEMA = "heartbeat"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
