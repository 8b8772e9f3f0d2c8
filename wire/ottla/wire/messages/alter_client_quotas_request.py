"""AlterClientQuotasRequest.

Generated from schemas/alter_client_quotas.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class EntityData(Struct):
    __slots__ = (
        "entity_type",
        "entity_name",
    )

    def __init__(
        self,
        *,
        entity_type: str = "",
        entity_name: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class OpData(Struct):
    __slots__ = (
        "key",
        "value",
        "remove",
    )

    def __init__(
        self,
        *,
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
    ) -> None:
        self.key = key
        self.value = value
        self.remove = remove


class EntryData(Struct):
    __slots__ = (
        "entity",
        "ops",
    )

    def __init__(
        self,
        *,
        entity: list[EntityData] = EMPTY,
        ops: list[OpData] = EMPTY,
    ) -> None:
        self.entity = [] if entity is EMPTY else entity
        self.ops = [] if ops is EMPTY else ops


class AlterClientQuotasRequest(Message):
    __slots__ = (
        "entries",
        "validate_only",
    )
    API_KEY = 49
    VERSIONS = range(2)
    FLEXIBLE_FROM = 1
    SCHEMA = "alter_client_quotas"

    def __init__(
        self,
        *,
        entries: list[EntryData] = EMPTY,
        validate_only: bool = False,
    ) -> None:
        self.entries = [] if entries is EMPTY else entries
        self.validate_only = validate_only
