"""Table of the client quotas of a broker: one row for each limit.  Pure.

A new limit needs a key in `ottla.model.settings.quotas`, a row here, and a place in
`request_quotas.py` where requests are charged.  The usage, metrics, callbacks and log messages of
the limit follow from its row.
"""

from ottla.model.settings.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from ottla.model.values import frozen


@frozen
class QuotaType:
    """Kind of client quota, such as produced bytes, with its names in Kafka."""

    kafka_name: str
    """Name of the quota in Kafka's `ClientQuotaType`, which a quota callback receives."""
    bean: str
    """Value of the key `type` in the name of the quota's MBean in Kafka."""
    attribute: str
    """Attribute of the quota's MBean in Kafka that contains the rate."""
    unit_text: str
    """Help text of the metric with the quota's rate."""
    reason: str
    """Reason for throttling a client in log messages. Its placeholder `limit` is replaced by the
    limit."""
    lasts_one_window: bool = False
    """True if a client is throttled for one window at most, computed from Kafka's rate. Otherwise
    the client is throttled until the overdraft of a token bucket is paid off."""


QUOTA_TYPES = {
    PRODUCER_BYTE_RATE: QuotaType(
        "PRODUCE",
        "Produce",
        "byte-rate",
        "Bytes a second of Produce requests.",
        "it sent more than {limit:,.0f} bytes a second",
    ),
    CONSUMER_BYTE_RATE: QuotaType(
        "FETCH",
        "Fetch",
        "byte-rate",
        "Bytes a second of Fetch responses.",
        "it fetches more than {limit:,.0f} bytes a second",
    ),
    REQUEST_PERCENTAGE: QuotaType(
        "REQUEST",
        "Request",
        "request-time",
        "Time of requests, in percent of a second.",
        "its requests took more than {limit:g} % of the time",
        lasts_one_window=True,
    ),
}
"""Table of a broker's client quotas, by the keys of their limits."""
