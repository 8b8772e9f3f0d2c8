"""SaslHandshakeRequest.

Generated from schemas/sasl_handshake.schema; never edited.
"""

from ottla.wire.codec_types import Message


class SaslHandshakeRequest(Message):
    __slots__ = ("mechanism",)
    API_KEY = 17
    VERSIONS = range(2)
    FLEXIBLE_FROM = None
    SCHEMA = "sasl_handshake"

    def __init__(
        self,
        *,
        mechanism: str = "",
    ) -> None:
        self.mechanism = mechanism
