"""DescribeQuotaUsage (our own, key 20006): what limited clients use of this broker.  Pure."""

from collections.abc import Callable

from ottla.broker.network.dispatch import RequestContext
from ottla.broker.quotas.quota_usage import usage_rows
from ottla.broker.quotas.request_quotas import RequestQuotas
from ottla.wire.messages.describe_quota_usage_request import DescribeQuotaUsageRequest
from ottla.wire.messages.describe_quota_usage_response import (
    DescribedQuotaUsage,
    DescribeQuotaUsageResponse,
)

CLIENTS_MAX = 1_000
"""Clients of each quota in an answer: more hold the loop for longer than 20 ms."""


class DescribeQuotaUsageApi:
    """Serves DescribeQuotaUsage 0."""

    def __init__(self, quotas: RequestQuotas, now_ms: Callable[[], int]) -> None:
        self._quotas = quotas
        self._now_ms = now_ms

    def handle(
        self, context: RequestContext, request: DescribeQuotaUsageRequest
    ) -> DescribeQuotaUsageResponse:
        """Answer with the clients that are throttled, then with those seen last."""
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
