"""How one process, broker or controller, shows what it counts."""

from dataclasses import dataclass

from ottla.model.settings.declare import Kind, setting

OFF = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where Prometheus finds this process's metrics."""

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
        kind=Kind.STRING,
        doc="Ottla's own: the address of that port; every interface when not set.",
    )

    @property
    def is_prometheus_served(self) -> bool:
        """Say whether anybody may ask for metrics."""
        return self.prometheus_port != OFF
