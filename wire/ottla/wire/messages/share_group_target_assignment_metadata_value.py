"""ShareGroupTargetAssignmentMetadataValue.

Generated from schemas/share_group_records.schema; never edited.
"""

from ottla.wire.codec_types import Message


class ShareGroupTargetAssignmentMetadataValue(Message):
    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "share_group_records"

    def __init__(
        self,
        *,
        assignment_epoch: int = 0,
        assignment_timestamp: int = 0,
    ) -> None:
        self.assignment_epoch = assignment_epoch
        self.assignment_timestamp = assignment_timestamp
