"""ListConfigResourcesResponse.

Generated from schemas/list_config_resources.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class ConfigResource(Struct):
    __slots__ = (
        "resource_name",
        "resource_type",
    )

    def __init__(
        self,
        *,
        resource_name: str = "",
        resource_type: int = 16,
    ) -> None:
        self.resource_name = resource_name
        self.resource_type = resource_type


class ListConfigResourcesResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "config_resources",
    )
    API_KEY = 74
    VERSIONS = range(2)
    FLEXIBLE_FROM = 0
    SCHEMA = "list_config_resources"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        config_resources: list[ConfigResource] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.config_resources = [] if config_resources is EMPTY else config_resources
