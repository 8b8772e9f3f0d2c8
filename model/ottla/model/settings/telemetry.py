"""Whether a broker takes in what clients report of themselves (KIP-714), and how much at once."""

from dataclasses import dataclass

from ottla.model.limits import MIB
from ottla.model.settings.declare import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Settings of client telemetry; all brokers should have the same."""

    enable: bool = setting(
        True,
        key="telemetry.enable",
        doc="Ottla's own: whether clients are told that they may report their metrics here; what "
        "they report is up to the subscriptions.",
    )
    payload_bytes_max: int = setting(
        MIB,
        key="telemetry.max.bytes",
        at_least=1,
        doc="The largest report of a client, as it comes, compressed.",
    )
