"""Computes the metrics of TLS handshakes and certificates on encrypted listeners. Pure."""

from collections.abc import Iterator, Mapping

from ottla.telemetry.metrics.instruments import Family, MetricKind

PREFIX = "tls."
OUTCOMES = {"succeeded": "handshakes.succeeded", "failed": "handshakes.failed"}
EXPIRY = "certificate.expires.seconds"


def tls_counts(counts: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the counters in `counts` whose names have the form `tls.LISTENER.NAME`, by listener
    name and then by NAME."""
    by_listener: dict[str, dict[str, float]] = {}
    for key, value in counts.items():
        if key.startswith(PREFIX):
            listener, _, what = key.removeprefix(PREFIX).partition(".")
            by_listener.setdefault(listener.upper(), {})[what] = value
    return by_listener


def tls_families(counts: Mapping[str, float]) -> Iterator[Family]:
    """Yield the metric families for the TLS counters in `counts`, which are named
    `tls.LISTENER.NAME`."""
    by_listener = tls_counts(counts)
    yield Family(
        "ottla_tls_handshakes_total",
        MetricKind.COUNTER,
        "Handshakes of clients, by outcome.",
        ("listener", "outcome"),
        [
            ((listener, outcome), found[what])
            for listener, found in by_listener.items()
            for outcome, what in OUTCOMES.items()
        ],
    )
    yield Family(
        "ottla_tls_certificate_expiry_timestamp_seconds",
        MetricKind.GAUGE,
        "Time at which the certificate of a listener expires, in seconds since 1970.",
        ("listener",),
        [((listener,), found[EXPIRY]) for listener, found in by_listener.items()],
    )
