"""DescribeGroupsRequest.

Generated from schemas/describe_groups.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message


class DescribeGroupsRequest(Message):
    __slots__ = (
        "groups",
        "include_authorized_operations",
    )
    API_KEY = 15
    VERSIONS = range(7)
    FLEXIBLE_FROM = 5
    SCHEMA = "describe_groups"

    def __init__(
        self,
        *,
        groups: list[str] = EMPTY,
        include_authorized_operations: bool = False,
    ) -> None:
        self.groups = [] if groups is EMPTY else groups
        self.include_authorized_operations = include_authorized_operations
