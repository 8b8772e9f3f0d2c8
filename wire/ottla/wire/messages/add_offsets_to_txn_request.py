"""AddOffsetsToTxnRequest.

Generated from schemas/add_offsets_to_txn.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class AddOffsetsToTxnRequest(Message):
    __slots__ = (
        "transactional_id",
        "producer_id",
        "producer_epoch",
        "group_id",
    )
    API_KEY = 25
    VERSIONS = range(5)
    FLEXIBLE_FROM = 3
    SCHEMA = "add_offsets_to_txn"

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        group_id: str = "",
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.group_id = group_id
