"""Lists the current usage of quotas by clients, throttled clients first. Pure."""

from collections.abc import Iterable
from heapq import nlargest
from typing import NamedTuple

from ottla.node.quotas.client_quotas import ClientQuotas, ClientUsage


class UsageRow(NamedTuple):
    """Usage of one quota by one client, as reported by DescribeQuotaUsage."""

    key: str
    """Key of the quota's limit, such as `producer_byte_rate`."""
    user: str
    """User under which the usage of the quota is counted; empty if the limit is for a client id
    alone."""
    client_id: str
    limit: float
    rate: float
    """Client's usage per second, in the quota's unit, over the windows of the quota."""
    throttle_ms: int
    """Milliseconds for which the quota still throttles the client."""


def usage_rows(
    quotas: Iterable[tuple[str, ClientQuotas]], now_ms: int, count_max: int
) -> list[UsageRow]:
    """Return the usage of each quota by at most `count_max` clients: throttled clients first, then
    the most recently active ones."""
    rows = []
    for key, one in quotas:
        for (user, client_id), usage in nlargest(count_max, one.usages.items(), _order):
            rows.append(
                UsageRow(
                    key,
                    user,
                    client_id,
                    usage.bucket.per_second,
                    usage.rate.per_second(now_ms),
                    max(0, usage.throttled_until_ms - now_ms),
                )
            )
    return rows


def _order(item: tuple[tuple[str, str], ClientUsage]) -> tuple[int, int]:
    usage = item[1]
    return usage.throttled_until_ms, usage.last_ms
