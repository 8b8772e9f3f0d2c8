"""DescribeConfigsRequest.

Generated from schemas/describe_configs.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class DescribeConfigsResource(Struct):
    __slots__ = (
        "resource_type",
        "resource_name",
        "configuration_keys",
    )

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configuration_keys: list[str] | None = EMPTY,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configuration_keys = [] if configuration_keys is EMPTY else configuration_keys


class DescribeConfigsRequest(Message):
    __slots__ = (
        "resources",
        "include_synonyms",
        "include_documentation",
    )
    API_KEY = 32
    VERSIONS = range(1, 5)
    FLEXIBLE_FROM = 4
    SCHEMA = "describe_configs"

    def __init__(
        self,
        *,
        resources: list[DescribeConfigsResource] = EMPTY,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> None:
        self.resources = [] if resources is EMPTY else resources
        self.include_synonyms = include_synonyms
        self.include_documentation = include_documentation
