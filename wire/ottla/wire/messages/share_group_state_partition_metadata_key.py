"""ShareGroupStatePartitionMetadataKey.

Generated from schemas/share_group_records.schema; never edited.
"""

from ottla.wire.codec_types import Message


class ShareGroupStatePartitionMetadataKey(Message):
    __slots__ = ("group_id",)
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = None
    SCHEMA = "share_group_records"

    def __init__(
        self,
        *,
        group_id: str = "",
    ) -> None:
        self.group_id = group_id
