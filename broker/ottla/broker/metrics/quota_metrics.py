"""What quotas show: rates of connections, by listener and by address.  Pure.

An address has a series only while it is limited and made a connection within the last hour, and
the latest `IP_SERIES_MAX` have one.
"""

from collections.abc import Iterator

from ottla.broker.metrics.families import gauge, gauges
from ottla.broker.quotas.connection_quotas import ConnectionQuotas
from ottla.telemetry.instruments import Family, MetricKind

IP_SERIES_MAX = 1_000
"""Addresses shown: strangers choose them, and every series costs the collector memory."""

SOCKETS = "kafka.server:type=socket-server-metrics,attribute="


def connection_families(connections: ConnectionQuotas, now_ms: int) -> Iterator[Family]:
    """Yield the rates of connections, and how many were closed for their address."""
    yield gauge(
        f"{SOCKETS}broker-connection-accept-rate",
        "Connections a second that count against the bound of this broker.",
        connections.broker_rate(now_ms),
    )
    by_listener = connections.listener_rates(now_ms)
    by_ip = connections.ip_rates(now_ms, IP_SERIES_MAX)
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
