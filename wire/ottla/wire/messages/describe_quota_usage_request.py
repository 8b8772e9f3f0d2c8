"""DescribeQuotaUsageRequest.

Generated from schemas/describe_quota_usage.schema; never edited.
"""

from ottla.wire.codec_types import Message


class DescribeQuotaUsageRequest(Message):
    __slots__ = ("count_max",)
    API_KEY = 20006
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_quota_usage"

    def __init__(
        self,
        *,
        count_max: int = 0,
    ) -> None:
        self.count_max = count_max
