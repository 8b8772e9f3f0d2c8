"""ShareGroupDescribeRequest.

Generated from schemas/share_group_describe.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message


class ShareGroupDescribeRequest(Message):
    __slots__ = (
        "group_ids",
        "include_authorized_operations",
    )
    API_KEY = 77
    VERSIONS = range(1, 2)
    FLEXIBLE_FROM = 1
    SCHEMA = "share_group_describe"

    def __init__(
        self,
        *,
        group_ids: list[str] = EMPTY,
        include_authorized_operations: bool = False,
    ) -> None:
        self.group_ids = [] if group_ids is EMPTY else group_ids
        self.include_authorized_operations = include_authorized_operations
