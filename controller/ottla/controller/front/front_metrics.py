"""Metrics of the connections to a controller's listeners. Pure."""

from collections.abc import Iterator, Mapping

from ottla.telemetry.metrics.instruments import Family, MetricKind


def front_families(counts: Mapping[str, float]) -> Iterator[Family]:
    """Yield the metrics of the connections to a controller's listeners. `counts` contains the
    counters of `FrontServer`."""
    yield Family(
        "ottla_controller_connections",
        MetricKind.GAUGE,
        "Open connections to the listeners of controllers, by their peers: nodes, clients, and "
        "those that have not sent their first bytes.",
        ("peer",),
        (
            (("nodes",), counts.get("network.connections.nodes", 0)),
            (("clients",), counts.get("network.connections", 0)),
            (("undecided",), counts.get("network.connections.undecided", 0)),
        ),
    )
    yield Family(
        "ottla_controller_connections_closed_total",
        MetricKind.COUNTER,
        "Connections of clients that this controller closed, by reason.",
        ("reason",),
        tuple(
            ((reason,), counts.get(f"network.connections.closed.{reason.replace('_', '.')}", 0))
            for reason in ("bad_input", "idle", "slow", "unread")
        ),
    )
    yield Family(
        "ottla_controller_connections_replaced_total",
        MetricKind.COUNTER,
        "Connections that were closed in favour of others, because their address had most places.",
        (),
        (((), counts.get("network.connections.replaced", 0)),),
    )
