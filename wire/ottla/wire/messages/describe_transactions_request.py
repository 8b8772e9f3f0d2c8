"""DescribeTransactionsRequest.

Generated from schemas/describe_transactions.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message


class DescribeTransactionsRequest(Message):
    __slots__ = ("transactional_ids",)
    API_KEY = 65
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_transactions"

    def __init__(
        self,
        *,
        transactional_ids: list[str] = EMPTY,
    ) -> None:
        self.transactional_ids = [] if transactional_ids is EMPTY else transactional_ids
