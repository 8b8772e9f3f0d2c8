"""GroupMetadataKey.

Generated from schemas/group_records.schema; never edited.
"""

from ottla.wire.codec_types import Message


class GroupMetadataKey(Message):
    __slots__ = ("group",)
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = None
    SCHEMA = "group_records"

    def __init__(
        self,
        *,
        group: str = "",
    ) -> None:
        self.group = group
