"""Metrics of quotas: usage of clients, and connection rates by listener and address. Pure.

A client or an address has series only if it is limited and was active within the last hour. If more
than `SERIES_MAX` qualify, throttled ones are exported first, then the most recently active.
"""

from collections.abc import Iterator

from ottla.node.network.connection_quotas import ConnectionQuotas
from ottla.node.quotas.quota_types import QUOTA_TYPES
from ottla.node.quotas.quota_usage import usage_rows
from ottla.node.quotas.request_quotas import RequestQuotas
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_families import gauge, gauges

SERIES_MAX = 1_000
"""Maximum number of clients that have metric series, for each quota, and maximum number of
addresses. Clients choose their names, and every series costs the metrics collector memory."""

SOCKETS = "kafka.server:type=socket-server-metrics,attribute="


def client_families(quotas: RequestQuotas, now_ms: int) -> Iterator[Family]:
    """Yield metrics of the rates and throttle times of quota-limited clients, by the name under
    which each client is counted."""
    rows = usage_rows(quotas.by_key.items(), now_ms, SERIES_MAX)
    labels = ("user", "client_id")
    for key, quota in QUOTA_TYPES.items():
        mine = [row for row in rows if row.key == key]
        yield gauges(
            f"kafka.server:type={quota.bean},attribute={quota.attribute}",
            quota.unit_text,
            labels,
            [((row.user, row.client_id), row.rate) for row in mine],
        )
        yield gauges(
            f"kafka.server:type={quota.bean},attribute=throttle-time",
            "Remaining milliseconds for which a client is throttled.",
            labels,
            [((row.user, row.client_id), row.throttle_ms) for row in mine],
        )
    yield gauge(
        "kafka.server:type=Request,attribute=exempt-request-time",
        "Time of requests charged to no client, between brokers and with acks=0, in percent of "
        "a second; counted while any client has a request quota.",
        quotas.exempt.per_second(now_ms),
    )


def connection_families(connections: ConnectionQuotas, now_ms: int) -> Iterator[Family]:
    """Yield metrics of connection rates, and of connections that were closed because of their
    address's limits."""
    yield gauge(
        f"{SOCKETS}broker-connection-accept-rate",
        "Connections a second that count towards the limit of this broker.",
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
        "Connections closed because they exceeded the rate or the count of their address.",
        ("reason",),
        (
            (("ip_rate",), connections.throttled_ip_count),
            (("ip_count",), connections.refused_ip_count),
        ),
    )
