"""ListConfigResourcesRequest.

Generated from schemas/list_config_resources.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message


class ListConfigResourcesRequest(Message):
    __slots__ = ("resource_types",)
    API_KEY = 74
    VERSIONS = range(2)
    FLEXIBLE_FROM = 0
    SCHEMA = "list_config_resources"

    def __init__(
        self,
        *,
        resource_types: list[int] = EMPTY,
    ) -> None:
        self.resource_types = [] if resource_types is EMPTY else resource_types
