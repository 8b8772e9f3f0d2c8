"""ExpireDelegationTokenRequest.

Generated from schemas/expire_delegation_token.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class ExpireDelegationTokenRequest(Message):
    __slots__ = (
        "hmac",
        "expiry_time_period_ms",
    )
    API_KEY = 40
    VERSIONS = range(1, 3)
    FLEXIBLE_FROM = 2
    SCHEMA = "expire_delegation_token"

    def __init__(
        self,
        *,
        hmac: bytes = b"",
        expiry_time_period_ms: int = 0,
    ) -> None:
        self.hmac = hmac
        self.expiry_time_period_ms = expiry_time_period_ms
