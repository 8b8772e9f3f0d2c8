"""CreateDelegationTokenRequest.

Generated from schemas/create_delegation_token.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class CreatableRenewers(Struct):
    __slots__ = (
        "principal_type",
        "principal_name",
    )

    def __init__(
        self,
        *,
        principal_type: str = "",
        principal_name: str = "",
    ) -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name


class CreateDelegationTokenRequest(Message):
    __slots__ = (
        "owner_principal_type",
        "owner_principal_name",
        "renewers",
        "max_lifetime_ms",
    )
    API_KEY = 38
    VERSIONS = range(1, 4)
    FLEXIBLE_FROM = 2
    SCHEMA = "create_delegation_token"

    def __init__(
        self,
        *,
        owner_principal_type: str | None = "",
        owner_principal_name: str | None = "",
        renewers: list[CreatableRenewers] = EMPTY,
        max_lifetime_ms: int = 0,
    ) -> None:
        self.owner_principal_type = owner_principal_type
        self.owner_principal_name = owner_principal_name
        self.renewers = [] if renewers is EMPTY else renewers
        self.max_lifetime_ms = max_lifetime_ms
