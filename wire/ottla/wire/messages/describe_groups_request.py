"""DescribeGroupsRequest.

Generated from schemas/describe_groups.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, fresh


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
        self.groups = fresh(groups)
        self.include_authorized_operations = include_authorized_operations
