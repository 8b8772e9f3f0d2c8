"""DescribeClientQuotasRequest.

Generated from schemas/describe_client_quotas.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class ComponentData(Struct):
    __slots__ = (
        "entity_type",
        "match_type",
        "match",
    )

    def __init__(
        self,
        *,
        entity_type: str = "",
        match_type: int = 0,
        match: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.match_type = match_type
        self.match = match


class DescribeClientQuotasRequest(Message):
    __slots__ = (
        "components",
        "strict",
    )
    API_KEY = 48
    VERSIONS = range(2)
    FLEXIBLE_FROM = 1
    SCHEMA = "describe_client_quotas"

    def __init__(
        self,
        *,
        components: list[ComponentData] = EMPTY,
        strict: bool = False,
    ) -> None:
        self.components = [] if components is EMPTY else components
        self.strict = strict
