"""EndTxnMarker.

Generated from schemas/transaction_records.schema; never edited.
"""

from ottla.wire.codec_types import Message


class EndTxnMarker(Message):
    __slots__ = ("coordinator_epoch",)
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = None
    SCHEMA = "transaction_records"

    def __init__(
        self,
        *,
        coordinator_epoch: int = 0,
    ) -> None:
        self.coordinator_epoch = coordinator_epoch
