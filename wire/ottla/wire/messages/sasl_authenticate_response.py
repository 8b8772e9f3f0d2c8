"""SaslAuthenticateResponse.

Generated from schemas/sasl_authenticate.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class SaslAuthenticateResponse(Message):
    __slots__ = (
        "error_code",
        "error_message",
        "auth_bytes",
        "session_lifetime_ms",
    )
    API_KEY = 36
    VERSIONS = range(3)
    FLEXIBLE_FROM = 2
    SCHEMA = "sasl_authenticate"

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        auth_bytes: bytes = b"",
        session_lifetime_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.auth_bytes = auth_bytes
        self.session_lifetime_ms = session_lifetime_ms
