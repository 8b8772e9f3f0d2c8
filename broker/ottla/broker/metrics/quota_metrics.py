"""What quotas show: what clients use, and rates of connections by listener and address.  Pure.

A client or an address has series only while it is limited and was seen within the last hour, and
at most `SERIES_MAX` of them do: the throttled ones, then the latest.
"""

from collections.abc import Iterator

from ottla.broker.metrics.families import gauge, gauges
from ottla.broker.quotas.connection_quotas import ConnectionQuotas
from ottla.broker.quotas.quota_usage import usage_rows
from ottla.broker.quotas.request_quotas import RequestQuotas
from ottla.model.settings.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from ottla.telemetry.instruments import Family, MetricKind

SERIES_MAX = 1_000
"""Clients of a quota, and addresses, that are shown: strangers choose their names, and every series
costs the collector memory."""

RATES = {
    PRODUCER_BYTE_RATE: ("Produce", "byte-rate", "Bytes a second of Produce requests."),
    CONSUMER_BYTE_RATE: ("Fetch", "byte-rate", "Bytes a second of Fetch responses."),
    REQUEST_PERCENTAGE: ("Request", "request-time", "Time of requests, in percent of a second."),
}
"""Kafka's beans of the limits."""

SOCKETS = "kafka.server:type=socket-server-metrics,attribute="


def client_families(quotas: RequestQuotas, now_ms: int) -> Iterator[Family]:
    """Yield the rates and throttles of limited clients, by the names they are counted under."""
    rows = usage_rows(quotas.by_key.items(), now_ms, SERIES_MAX)
    labels = ("user", "client_id")
    for key, (bean, attribute, text) in RATES.items():
        mine = [row for row in rows if row.key == key]
        yield gauges(
            f"kafka.server:type={bean},attribute={attribute}",
            text,
            labels,
            [((row.user, row.client_id), row.rate) for row in mine],
        )
        yield gauges(
            f"kafka.server:type={bean},attribute=throttle-time",
            "Milliseconds for which a client is still throttled.",
            labels,
            [((row.user, row.client_id), row.throttle_ms) for row in mine],
        )
    yield gauge(
        "kafka.server:type=Request,attribute=exempt-request-time",
        "Time of requests that no client pays for, between brokers and with acks=0, in percent of "
        "a second; counted while any client has a request quota.",
        quotas.exempt.per_second(now_ms),
    )


def connection_families(connections: ConnectionQuotas, now_ms: int) -> Iterator[Family]:
    """Yield the rates of connections, and how many were closed for their address."""
    yield gauge(
        f"{SOCKETS}broker-connection-accept-rate",
        "Connections a second that count against the bound of this broker.",
        connections.broker_rate(now_ms),
    )
    by_listener = connections.listener_rates(now_ms)
    by_ip = connections.ip_rates(now_ms, SERIES_MAX)
    yield gauges(
        f"{SOCKETS}connection-accept-rate",
        "Connections a second, by listener, and by address where addresses are limited.",
        ("listener", "ip"),
        [
            *(((name, ""), rate) for name, rate in by_listener.items()),
            *((("", host), rate) for host, rate in by_ip.items()),
        ],
    )
    yield Family(
        "ottla_network_connections_refused_total",
        MetricKind.COUNTER,
        "Connections closed at once: above the rate or the count of their address.",
        ("reason",),
        (
            (("ip_rate",), connections.throttled_ip_count),
            (("ip_count",), connections.refused_ip_count),
        ),
    )
