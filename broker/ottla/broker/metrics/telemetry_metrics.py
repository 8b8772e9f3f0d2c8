"""Computes the metrics about client telemetry: reporting clients, their pushes, the exporters.

This module only reads. Kafka reports throttled and exported pushes for each client. Here one number
covers all clients, because thousands of short-lived clients would result in thousands of series.
`ottla metrics clients` shows the numbers by client.
"""

from collections.abc import Iterator, Mapping, Sequence

from ottla.telemetry.clients.exporter import Exporter
from ottla.telemetry.clients.instances import ClientInstances
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_families import counter, gauge

CLIENT_METRICS = "kafka.server:type=client-metrics,attribute="

OUTCOMES = ("sent", "dropped", "refused")
"""Outcomes of a client's metric push at one exporter, as named in the exporter's counters."""


def telemetry_families(
    instances: ClientInstances,
    ingest: Mapping[str, int],
    series: Mapping[str, int],
    exporters: Sequence[Exporter],
) -> Iterator[Family]:
    """Yield the metric families about the metrics that clients push."""
    counts = instances.counts
    yield gauge(
        f"{CLIENT_METRICS}instance-count",
        "Client instances that report to this broker.",
        len(instances),
    )
    yield counter(
        f"{CLIENT_METRICS}throttle-count",
        "Requests that clients sent before their push interval had passed.",
        counts.throttled,
    )
    yield counter(
        f"{CLIENT_METRICS}unknown-subscription-request-count",
        "Pushes for a subscription that is not the client's current one.",
        counts.unknown_subscriptions,
    )
    yield counter(
        f"{CLIENT_METRICS}plugin-export-count",
        "Pushes that were decompressed, decoded and passed to the exporters.",
        counts.exported,
    )
    yield counter(
        f"{CLIENT_METRICS}plugin-error-count",
        "Pushes that could not be decompressed or decoded, or that exceeded the queue.",
        counts.failed,
    )
    yield _ours(
        "instances_evicted_total",
        MetricKind.COUNTER,
        "Client instances dropped because the maximum was reached.",
        counts.evicted,
    )
    yield _ours("pushes_total", MetricKind.COUNTER, "Pushes accepted.", ingest["pushes"])
    yield _ours("push_bytes_total", MetricKind.COUNTER, "Bytes pushed.", ingest["bytes"])
    yield _ours("pushes_waiting", MetricKind.GAUGE, "Pushes not processed yet.", ingest["pending"])
    yield _ours(
        "client_series", MetricKind.GAUGE, "Pushed series stored for Prometheus.", series["series"]
    )
    yield _ours(
        "client_points_refused_total",
        MetricKind.COUNTER,
        "Data points of clients dropped because the maximum of series was reached.",
        series["refused"],
    )
    counted = [(exporter.name, exporter.counts()) for exporter in exporters]
    yield Family(
        "ottla_telemetry_exporter_pushes_total",
        MetricKind.COUNTER,
        "Pushes at each exporter, by outcome.",
        ("exporter", "outcome"),
        [
            ((name, outcome), found.get(outcome, 0))
            for name, found in counted
            for outcome in OUTCOMES
        ],
    )
    yield Family(
        "ottla_telemetry_exporter_pushes_waiting",
        MetricKind.GAUGE,
        "Pushes waiting at each exporter.",
        ("exporter",),
        [((name,), found["queued"]) for name, found in counted],
    )


def _ours(name: str, kind: MetricKind, text: str, value: float) -> Family:
    return Family(f"ottla_telemetry_{name}", kind, text, (), (((), value),))
