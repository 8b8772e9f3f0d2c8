"""DefaultPrincipalData.

Generated from schemas/envelope.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class DefaultPrincipalData(Message):
    __slots__ = (
        "type",
        "name",
        "token_authenticated",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "envelope"

    def __init__(
        self,
        *,
        type: str = "",
        name: str = "",
        token_authenticated: bool = False,
    ) -> None:
        self.type = type
        self.name = name
        self.token_authenticated = token_authenticated
