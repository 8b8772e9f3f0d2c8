"""Registers the metrics of a socket server: connections, logins and TLS. Pure."""

from collections.abc import Callable, Iterator, Mapping

from ottla.broker.metrics.login_metrics import login_families
from ottla.broker.metrics.tls_metrics import tls_families
from ottla.node.authentication.authenticators import Authenticators
from ottla.node.network.connection_quotas import ConnectionQuotas
from ottla.node.part_registry import PartRegistry
from ottla.node.quotas.quota_metrics import connection_families
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_families import counter, gauge


def register_network_metrics(
    parts: PartRegistry,
    counts: Callable[[], Mapping[str, float]],
    connections: ConnectionQuotas,
    authenticators: Authenticators,
) -> None:
    """Register the metrics and status values of a socket server. `counts` returns its counters."""
    parts.figures(counts)
    parts.figures(lambda: authenticators.metrics)
    parts.problems(authenticators.problems)
    parts.families(lambda: _network(counts()))
    parts.families(lambda: connection_families(connections, parts.clock.monotonic_ms()))
    parts.families(lambda: login_families(authenticators, counts()))
    parts.families(lambda: tls_families(counts()))


def _network(counts: Mapping[str, float]) -> Iterator[Family]:
    bean = "kafka.server:type=socket-server-metrics,attribute="
    yield gauge(f"{bean}connection-count", "Open connections.", counts["network.connections"])
    yield counter(
        f"{bean}connection-creation-total",
        "Connections accepted.",
        counts["network.connections.accepted"],
    )
    yield Family(
        "ottla_network_connections_closed_total",
        MetricKind.COUNTER,
        "Connections that this broker closed, by reason.",
        ("reason",),
        (
            (("bad_input",), counts["network.connections.closed.bad.input"]),
            (("idle",), counts["network.connections.closed.idle"]),
            (("slow",), counts["network.connections.closed.slow"]),
            (("unread",), counts["network.connections.closed.unread"]),
        ),
    )
    yield Family(
        "ottla_network_request_held_bytes",
        MetricKind.GAUGE,
        "Bytes of unanswered requests.",
        (),
        (((), counts["network.request.bytes.held"]),),
    )
