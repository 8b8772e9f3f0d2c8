"""EndTxnRequest.

Generated from schemas/end_txn.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class EndTxnRequest(Message):
    __slots__ = (
        "transactional_id",
        "producer_id",
        "producer_epoch",
        "committed",
    )
    API_KEY = 26
    VERSIONS = range(6)
    FLEXIBLE_FROM = 3
    SCHEMA = "end_txn"

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        committed: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.committed = committed
