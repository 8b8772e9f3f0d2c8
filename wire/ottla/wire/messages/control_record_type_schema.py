"""ControlRecordTypeSchema.

Generated from schemas/transaction_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

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
