"""EnvelopeResponse.

Generated from schemas/envelope.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class EnvelopeResponse(Message):
    __slots__ = (
        "response_data",
        "error_code",
    )
    API_KEY = 58
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "envelope"

    def __init__(
        self,
        *,
        response_data: bytes | None = None,
        error_code: int = 0,
    ) -> None:
        self.response_data = response_data
        self.error_code = error_code
