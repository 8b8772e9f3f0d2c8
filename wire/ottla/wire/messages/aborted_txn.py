"""AbortedTxn.

Generated from schemas/transaction_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class AbortedTxn(Message):
    __slots__ = (
        "producer_id",
        "first_offset",
        "last_offset",
        "last_stable_offset",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = None
    SCHEMA = "transaction_records"

    def __init__(
        self,
        *,
        producer_id: int = 0,
        first_offset: int = 0,
        last_offset: int = 0,
        last_stable_offset: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.last_stable_offset = last_stable_offset
