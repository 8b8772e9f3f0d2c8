"""What a broker tells at /metrics of the clients that report to it, and of where that goes.

It only reads.  Kafka tells what it throttles and hands on for each client apart; here that is one
number for all (`ottla metrics clients` has it by client): thousands of clients that come and go
would be thousands of series.
"""

from collections.abc import Iterator, Mapping, Sequence

from ottla.broker.metrics.families import counter, gauge
from ottla.telemetry.exporter import Exporter
from ottla.telemetry.instances import ClientInstances
from ottla.telemetry.instruments import Family, MetricKind

CLIENT_METRICS = "kafka.server:type=client-metrics,attribute="

OUTCOMES = ("sent", "dropped", "refused")
"""What may become of a push at one way out, by the names of its counts."""


def telemetry_families(
    instances: ClientInstances,
    ingest: Mapping[str, int],
    series: Mapping[str, int],
    exporters: Sequence[Exporter],
) -> Iterator[Family]:
    """Yield what is counted of clients' telemetry."""
    counts = instances.counts
    yield gauge(
        f"{CLIENT_METRICS}instance-count", "Client instances known to this broker.", len(instances)
    )
    yield counter(
        f"{CLIENT_METRICS}throttle-count",
        "Requests of clients that came before their interval was over.",
        counts.throttled,
    )
    yield counter(
        f"{CLIENT_METRICS}unknown-subscription-request-count",
        "Pushes for a subscription that is not the client's, or not any more.",
        counts.unknown_subscriptions,
    )
    yield counter(
        f"{CLIENT_METRICS}plugin-export-count",
        "Pushes that were unpacked, understood and handed on.",
        counts.exported,
    )
    yield counter(
        f"{CLIENT_METRICS}plugin-error-count",
        "Pushes that could not be unpacked or understood, or that there was no room for.",
        counts.failed,
    )
    yield _ours(
        "instances_evicted_total",
        MetricKind.COUNTER,
        "Client instances forgotten for want of room.",
        counts.evicted,
    )
    yield _ours("pushes_total", MetricKind.COUNTER, "Pushes taken in.", ingest["pushes"])
    yield _ours(
        "push_bytes_total", MetricKind.COUNTER, "Their bytes, as they came.", ingest["bytes"]
    )
    yield _ours("pushes_waiting", MetricKind.GAUGE, "Pushes not taken in yet.", ingest["pending"])
    yield _ours("client_series", MetricKind.GAUGE, "Series held for Prometheus.", series["series"])
    yield _ours(
        "client_points_refused_total",
        MetricKind.COUNTER,
        "Points of clients left out of these for want of room.",
        series["refused"],
    )
    told = [(exporter.name, exporter.counts()) for exporter in exporters]
    yield Family(
        "ottla_telemetry_exporter_pushes_total",
        MetricKind.COUNTER,
        "What became of pushes at each way out.",
        ("exporter", "outcome"),
        [((name, outcome), found.get(outcome, 0)) for name, found in told for outcome in OUTCOMES],
    )
    yield Family(
        "ottla_telemetry_exporter_pushes_waiting",
        MetricKind.GAUGE,
        "Pushes that wait at each way out.",
        ("exporter",),
        [((name,), found["queued"]) for name, found in told],
    )


def _ours(name: str, kind: MetricKind, text: str, value: float) -> Family:
    return Family(f"ottla_telemetry_{name}", kind, text, (), (((), value),))
