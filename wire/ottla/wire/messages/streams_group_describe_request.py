"""StreamsGroupDescribeRequest.

Generated from schemas/streams_group_describe.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message


class StreamsGroupDescribeRequest(Message):
    __slots__ = (
        "group_ids",
        "include_authorized_operations",
        "include_topology_description",
    )
    API_KEY = 89
    VERSIONS = range(2)
    FLEXIBLE_FROM = 0
    SCHEMA = "streams_group_describe"

    def __init__(
        self,
        *,
        group_ids: list[str] = EMPTY,
        include_authorized_operations: bool = False,
        include_topology_description: bool = False,
    ) -> None:
        self.group_ids = [] if group_ids is EMPTY else group_ids
        self.include_authorized_operations = include_authorized_operations
        self.include_topology_description = include_topology_description
