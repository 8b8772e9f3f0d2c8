"""DescribeShareDeliveryRequest.

Generated from schemas/describe_share_delivery.schema; never edited.
"""

from ottla.wire.codec_types import Message


class DescribeShareDeliveryRequest(Message):
    __slots__ = ("group_id",)
    API_KEY = 20009
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_share_delivery"

    def __init__(
        self,
        *,
        group_id: str = "",
    ) -> None:
        self.group_id = group_id
