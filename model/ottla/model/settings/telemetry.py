"""Whether a broker takes in what clients report of themselves (KIP-714), and how much at once."""

from typing import Literal

from ottla.model.limits import MIB
from ottla.model.settings.client_metrics import INTERVAL_MS_MAX, INTERVAL_MS_MIN
from ottla.model.settings.declare import setting
from ottla.model.values import frozen


@frozen(kw_only=True)
class TelemetryConfig:
    """Settings of client telemetry; all brokers should have the same."""

    offered: Literal["auto", "on", "off"] = setting(
        "auto",
        key="client.telemetry",
        one_of=("auto", "on", "off"),
        doc="Ottla's own: whether clients are offered to report their metrics; auto does so while "
        "a subscription exists, or an exporter (telemetry.otlp.endpoint, telemetry.topic, "
        "telemetry.exporters). What they report is up to the subscriptions.",
    )
    payload_bytes_max: int = setting(
        MIB,
        key="telemetry.max.bytes",
        at_least=1,
        doc="The largest report of a client, as it comes, compressed.",
    )
    unsubscribed_interval_ms: int = setting(
        300_000,
        key="telemetry.unsubscribed.interval.ms",
        at_least=INTERVAL_MS_MIN,
        at_most=INTERVAL_MS_MAX,
        doc="Ottla's own: how often a client of which nothing is wanted asks whether that is still "
        "so. Shorter lets a first subscription reach running clients sooner, and costs a request "
        "of each of them every time.",
    )
