"""BrokerHeartbeatResponse.

Generated from schemas/broker_heartbeat.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class BrokerHeartbeatResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "is_caught_up",
        "is_fenced",
        "should_shut_down",
    )
    API_KEY = 63
    VERSIONS = range(3)
    FLEXIBLE_FROM = 0
    SCHEMA = "broker_heartbeat"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        is_caught_up: bool = False,
        is_fenced: bool = True,
        should_shut_down: bool = False,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.is_caught_up = is_caught_up
        self.is_fenced = is_fenced
        self.should_shut_down = should_shut_down
