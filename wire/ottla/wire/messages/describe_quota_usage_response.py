"""DescribeQuotaUsageResponse.

Generated from schemas/describe_quota_usage.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class DescribedQuotaUsage(Struct):
    __slots__ = (
        "quota_key",
        "user",
        "client_id",
        "limit",
        "rate",
        "throttle_ms",
    )

    def __init__(
        self,
        *,
        quota_key: str = "",
        user: str = "",
        client_id: str = "",
        limit: float = 0.0,
        rate: float = 0.0,
        throttle_ms: int = 0,
    ) -> None:
        self.quota_key = quota_key
        self.user = user
        self.client_id = client_id
        self.limit = limit
        self.rate = rate
        self.throttle_ms = throttle_ms


class DescribeQuotaUsageResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "clients",
    )
    API_KEY = 20006
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_quota_usage"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        clients: list[DescribedQuotaUsage] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.clients = [] if clients is EMPTY else clients
