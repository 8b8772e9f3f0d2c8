"""How one process, broker or controller, shows what it counts and what its requests do."""

from dataclasses import dataclass

from ottla.model.settings.declare import SettingKind, setting

OFF = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where this process's metrics and traces are found, and where they are sent."""

    prometheus_port: int = setting(
        OFF,
        key="metrics.prometheus.port",
        at_least=OFF,
        at_most=65_535,
        doc="Ottla's own: the port where GET /metrics tells Prometheus this process's metrics; -1 "
        "for none, 0 for any that is free.",
    )
    prometheus_host: str = setting(
        "",
        key="metrics.prometheus.host",
        kind=SettingKind.STRING,
        doc="Ottla's own: the address of that port; every interface when not set.",
    )

    otlp_interval_ms: int = setting(
        60_000,
        key="metrics.otlp.interval.ms",
        at_least=0,
        doc="Ottla's own: how often this process's metrics are sent to the collectors of "
        "telemetry.otlp.endpoint; 0 for never.",
    )
    traces_sample_ratio: float = setting(
        0.0,
        key="telemetry.traces.sample.ratio",
        at_least=0,
        at_most=1,
        doc="Ottla's own: the part of all requests whose traces are sent to the collectors of "
        "telemetry.otlp.endpoint; above 0, also those of requests that belong to an application's "
        "trace. It needs the extra otel.",
    )

    @property
    def is_prometheus_served(self) -> bool:
        """Whether anybody may ask for metrics."""
        return self.prometheus_port != OFF
