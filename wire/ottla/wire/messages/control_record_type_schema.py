"""ControlRecordTypeSchema.

Generated from schemas/transaction_records.schema; never edited.
"""

from ottla.wire.codec_types import Message


class ControlRecordTypeSchema(Message):
    __slots__ = ("type",)
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = None
    SCHEMA = "transaction_records"

    def __init__(
        self,
        *,
        type: int = 0,
    ) -> None:
        self.type = type
