"""AlterClientQuotasResponse.

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


class EntryData(Struct):
    __slots__ = (
        "error_code",
        "error_message",
        "entity",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        entity: list[EntityData] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.entity = [] if entity is EMPTY else entity


class AlterClientQuotasResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "entries",
    )
    API_KEY = 49
    VERSIONS = range(2)
    FLEXIBLE_FROM = 1
    SCHEMA = "alter_client_quotas"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        entries: list[EntryData] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.entries = [] if entries is EMPTY else entries
