"""TransactionLogKey.

Generated from schemas/transaction_state.schema; never edited.
"""

from ottla.wire.codec_types import Message


class TransactionLogKey(Message):
    __slots__ = ("transactional_id",)
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = None
    SCHEMA = "transaction_state"

    def __init__(
        self,
        *,
        transactional_id: str = "",
    ) -> None:
        self.transactional_id = transactional_id
