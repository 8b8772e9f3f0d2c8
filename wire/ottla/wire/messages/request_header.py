"""RequestHeader.

Generated from schemas/headers.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class RequestHeader(Message):
    __slots__ = (
        "request_api_key",
        "request_api_version",
        "correlation_id",
        "client_id",
    )
    API_KEY = -1
    VERSIONS = range(1, 3)
    FLEXIBLE_FROM = 2
    SCHEMA = "headers"

    def __init__(
        self,
        *,
        request_api_key: int = 0,
        request_api_version: int = 0,
        correlation_id: int = 0,
        client_id: str | None = "",
    ) -> None:
        self.request_api_key = request_api_key
        self.request_api_version = request_api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
