"""IncrementalAlterConfigsRequest.

Generated from schemas/incremental_alter_configs.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class AlterableConfig(Struct):
    __slots__ = (
        "name",
        "config_operation",
        "value",
    )

    def __init__(
        self,
        *,
        name: str = "",
        config_operation: int = 0,
        value: str | None = "",
    ) -> None:
        self.name = name
        self.config_operation = config_operation
        self.value = value


class AlterConfigsResource(Struct):
    __slots__ = (
        "resource_type",
        "resource_name",
        "configs",
    )

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[AlterableConfig] = EMPTY,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs = [] if configs is EMPTY else configs


class IncrementalAlterConfigsRequest(Message):
    __slots__ = (
        "resources",
        "validate_only",
    )
    API_KEY = 44
    VERSIONS = range(2)
    FLEXIBLE_FROM = 1
    SCHEMA = "incremental_alter_configs"

    def __init__(
        self,
        *,
        resources: list[AlterConfigsResource] = EMPTY,
        validate_only: bool = False,
    ) -> None:
        self.resources = [] if resources is EMPTY else resources
        self.validate_only = validate_only
