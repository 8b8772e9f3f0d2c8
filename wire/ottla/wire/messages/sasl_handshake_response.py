"""SaslHandshakeResponse.

Generated from schemas/sasl_handshake.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message


class SaslHandshakeResponse(Message):
    __slots__ = (
        "error_code",
        "mechanisms",
    )
    API_KEY = 17
    VERSIONS = range(2)
    FLEXIBLE_FROM = None
    SCHEMA = "sasl_handshake"

    def __init__(
        self,
        *,
        error_code: int = 0,
        mechanisms: list[str] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.mechanisms = [] if mechanisms is EMPTY else mechanisms
