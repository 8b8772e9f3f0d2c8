"""Settings of a broker for the telemetry that clients push (KIP-714), and the limits on it."""

from typing import Literal

from ottla.model.limits import MIB
from ottla.model.settings.declare import setting
from ottla.model.settings.telemetry.client_metrics import INTERVAL_MS_MAX, INTERVAL_MS_MIN
from ottla.model.values import frozen


@frozen(kw_only=True)
class TelemetryConfig:
    """Settings for the telemetry that clients push. All brokers should have the same values."""

    offered: Literal["auto", "on", "off"] = setting(
        "auto",
        key="client.telemetry",
        one_of=("auto", "on", "off"),
        doc="Ottla's own: whether clients can push their metrics. auto permits it while there is a "
        "subscription or an exporter (telemetry.otlp.endpoint, telemetry.topic, "
        "telemetry.exporters). The subscriptions decide which metrics are pushed.",
    )
    payload_bytes_max: int = setting(
        MIB,
        key="telemetry.max.bytes",
        at_least=1,
        doc="Maximum size of a client's push, compressed.",
    )
    unsubscribed_interval_ms: int = setting(
        300_000,
        key="telemetry.unsubscribed.interval.ms",
        at_least=INTERVAL_MS_MIN,
        at_most=INTERVAL_MS_MAX,
        doc="Ottla's own: interval at which a client without a subscription checks for one. "
        "Shorter makes a first subscription reach running clients sooner, at the cost of a request "
        "per client and interval.",
    )
