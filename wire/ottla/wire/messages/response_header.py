"""ResponseHeader.

Generated from schemas/headers.schema; never edited.
"""

from ottla.wire.codec_types import Message


class ResponseHeader(Message):
    __slots__ = ("correlation_id",)
    API_KEY = -1
    VERSIONS = range(2)
    FLEXIBLE_FROM = 1
    SCHEMA = "headers"

    def __init__(
        self,
        *,
        correlation_id: int = 0,
    ) -> None:
        self.correlation_id = correlation_id
