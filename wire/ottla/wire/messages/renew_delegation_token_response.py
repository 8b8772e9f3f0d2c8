"""RenewDelegationTokenResponse.

Generated from schemas/renew_delegation_token.schema; never edited.
"""

from ottla.wire.codec_types import Message


class RenewDelegationTokenResponse(Message):
    __slots__ = (
        "error_code",
        "expiry_timestamp_ms",
        "throttle_time_ms",
    )
    API_KEY = 39
    VERSIONS = range(1, 3)
    FLEXIBLE_FROM = 2
    SCHEMA = "renew_delegation_token"

    def __init__(
        self,
        *,
        error_code: int = 0,
        expiry_timestamp_ms: int = 0,
        throttle_time_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.expiry_timestamp_ms = expiry_timestamp_ms
        self.throttle_time_ms = throttle_time_ms
