"""DescribeClientQuotasResponse.

Generated from schemas/describe_client_quotas.schema; never edited.
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


class ValueData(Struct):
    __slots__ = (
        "key",
        "value",
    )

    def __init__(
        self,
        *,
        key: str = "",
        value: float = 0.0,
    ) -> None:
        self.key = key
        self.value = value


class EntryData(Struct):
    __slots__ = (
        "entity",
        "values",
    )

    def __init__(
        self,
        *,
        entity: list[EntityData] = EMPTY,
        values: list[ValueData] = EMPTY,
    ) -> None:
        self.entity = [] if entity is EMPTY else entity
        self.values = [] if values is EMPTY else values


class DescribeClientQuotasResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "entries",
    )
    API_KEY = 48
    VERSIONS = range(2)
    FLEXIBLE_FROM = 1
    SCHEMA = "describe_client_quotas"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        entries: list[EntryData] | None = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.entries = [] if entries is EMPTY else entries
