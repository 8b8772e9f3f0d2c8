"""EnvelopeRequest.

Generated from schemas/envelope.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class EnvelopeRequest(Message):
    __slots__ = (
        "request_data",
        "request_principal",
        "client_host_address",
    )
    API_KEY = 58
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "envelope"

    def __init__(
        self,
        *,
        request_data: bytes = b"",
        request_principal: bytes | None = b"",
        client_host_address: bytes = b"",
    ) -> None:
        self.request_data = request_data
        self.request_principal = request_principal
        self.client_host_address = client_host_address
