"""ShareGroupMetadataValue.

Generated from schemas/share_group_records.schema; never edited.
"""

from ottla.wire.codec_types import Message


class ShareGroupMetadataValue(Message):
    __slots__ = (
        "epoch",
        "metadata_hash",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "share_group_records"

    def __init__(
        self,
        *,
        epoch: int = 0,
        metadata_hash: int = 0,
    ) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash
