"""How one process, broker or controller, shows what it counts and what its requests do."""

from collections.abc import Mapping

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.settings.metrics_access import (
    OPEN_ACCESS,
    MetricsAccess,
    metrics_access,
    parse_token,
    parse_users,
)
from ottla.model.values import frozen

OFF = -1


@frozen(kw_only=True)
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
    prometheus_certificate: str | None = setting(
        None,
        key="metrics.prometheus.ssl.keystore.location",
        kind=SettingKind.STRING,
        doc="Ottla's own: a PEM file with private key and certificate, by which that port is "
        "served over HTTPS; it must not be readable by all. A new file holds at once.",
    )
    prometheus_trust: str | None = setting(
        None,
        key="metrics.prometheus.ssl.truststore.location",
        kind=SettingKind.STRING,
        doc="Ottla's own: a PEM file of CAs; who asks for metrics must show a certificate of one "
        "of them.",
    )
    prometheus_token: str | None = setting(
        None,
        key="metrics.prometheus.bearer.token",
        kind=SettingKind.PASSWORD,
        parse=parse_token,
        doc="Ottla's own: the token that who asks for metrics must show (Authorization: Bearer).",
    )
    prometheus_users: Mapping[str, str] | None = setting(
        None,
        key="metrics.prometheus.basic.users",
        kind=SettingKind.PASSWORD,
        parse=parse_users,
        doc="Ottla's own: users who may ask for metrics (Authorization: Basic), NAME:PASSWORD "
        "each.",
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

    def __post_init__(self) -> None:
        """Refuse rules of access to what is not served, and those that lack something."""
        if self.prometheus_access != OPEN_ACCESS and not self.is_prometheus_served:
            raise ConfigError(
                "metrics.prometheus.port",
                "is not set, and metrics.prometheus.* says who may ask there; set the port, or "
                "take them out",
            )

    @property
    def is_prometheus_served(self) -> bool:
        """Whether anybody may ask for metrics."""
        return self.prometheus_port != OFF

    @property
    def prometheus_access(self) -> MetricsAccess:
        """Who may ask, and by which certificate the port is known.

        Raises ConfigError where a setting is there without the one that it needs.
        """
        return metrics_access(
            certificate=self.prometheus_certificate,
            trust=self.prometheus_trust,
            token=self.prometheus_token,
            users=self.prometheus_users or {},
        )
