"""ConsumerGroupTargetAssignmentMetadataValue.

Generated from schemas/consumer_group_records.schema; never edited.
"""

from ottla.wire.codec_types import Message


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    __slots__ = ("assignment_epoch",)
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "consumer_group_records"

    def __init__(
        self,
        *,
        assignment_epoch: int = 0,
    ) -> None:
        self.assignment_epoch = assignment_epoch
