"""DescribeQuotaUsage (Ottla's own, key 20006): describes the usage of clients' quotas on this
broker. Pure."""

from collections.abc import Callable

from ottla.node.network.dispatch import RequestContext
from ottla.node.quotas.quota_usage import usage_rows
from ottla.node.quotas.request_quotas import RequestQuotas
from ottla.wire.messages.describe_quota_usage_request import DescribeQuotaUsageRequest
from ottla.wire.messages.describe_quota_usage_response import (
    DescribedQuotaUsage,
    DescribeQuotaUsageResponse,
)

CLIENTS_MAX = 1_000
"""Maximum number of clients that a DescribeQuotaUsage response lists for each quota. A larger value
blocks the event loop for more than 20 ms."""


class DescribeQuotaUsageApi:
    """Handler of DescribeQuotaUsage, version 0, which reports the use of quotas by clients."""

    def __init__(self, quotas: RequestQuotas, now_ms: Callable[[], int]) -> None:
        self._quotas = quotas
        self._now_ms = now_ms

    def handle(
        self, context: RequestContext, request: DescribeQuotaUsageRequest
    ) -> DescribeQuotaUsageResponse:
        """Answer the request with the quota usage of clients: throttled clients first, then all
        others by their last activity, most recent first."""
        count_max = max(0, min(request.count_max, CLIENTS_MAX))
        rows = usage_rows(self._quotas.by_key.items(), self._now_ms(), count_max)
        return DescribeQuotaUsageResponse(
            clients=[
                DescribedQuotaUsage(
                    quota_key=row.key,
                    user=row.user,
                    client_id=row.client_id,
                    limit=row.limit,
                    rate=row.rate,
                    throttle_ms=row.throttle_ms,
                )
                for row in rows
            ]
        )
