"""DescribeClientInstancesRequest.

Generated from schemas/describe_client_instances.schema; never edited.
"""

from uuid import UUID

from ottla.wire.codec_types import ZERO_UUID, Message


class DescribeClientInstancesRequest(Message):
    __slots__ = (
        "after",
        "limit",
    )
    API_KEY = 20002
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_client_instances"

    def __init__(
        self,
        *,
        after: UUID = ZERO_UUID,
        limit: int = 500,
    ) -> None:
        self.after = after
        self.limit = limit
