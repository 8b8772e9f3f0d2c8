"""RenewDelegationTokenRequest.

Generated from schemas/renew_delegation_token.schema; never edited.
"""

from ottla.wire.codec_types import Message


class RenewDelegationTokenRequest(Message):
    __slots__ = (
        "hmac",
        "renew_period_ms",
    )
    API_KEY = 39
    VERSIONS = range(1, 3)
    FLEXIBLE_FROM = 2
    SCHEMA = "renew_delegation_token"

    def __init__(
        self,
        *,
        hmac: bytes = b"",
        renew_period_ms: int = 0,
    ) -> None:
        self.hmac = hmac
        self.renew_period_ms = renew_period_ms
