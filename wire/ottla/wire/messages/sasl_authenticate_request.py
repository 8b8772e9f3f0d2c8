"""SaslAuthenticateRequest.

Generated from schemas/sasl_authenticate.schema; never edited.
"""

from ottla.wire.codec_types import Message


class SaslAuthenticateRequest(Message):
    __slots__ = ("auth_bytes",)
    API_KEY = 36
    VERSIONS = range(3)
    FLEXIBLE_FROM = 2
    SCHEMA = "sasl_authenticate"

    def __init__(
        self,
        *,
        auth_bytes: bytes = b"",
    ) -> None:
        self.auth_bytes = auth_bytes
