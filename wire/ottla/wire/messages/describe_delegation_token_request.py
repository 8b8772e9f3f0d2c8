"""DescribeDelegationTokenRequest.

Generated from schemas/describe_delegation_token.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class DescribeDelegationTokenOwner(Struct):
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


class DescribeDelegationTokenRequest(Message):
    __slots__ = ("owners",)
    API_KEY = 41
    VERSIONS = range(1, 4)
    FLEXIBLE_FROM = 2
    SCHEMA = "describe_delegation_token"

    def __init__(
        self,
        *,
        owners: list[DescribeDelegationTokenOwner] | None = EMPTY,
    ) -> None:
        self.owners = [] if owners is EMPTY else owners
