"""Settings of the endpoint /metrics and of traces, for a broker or a controller."""

from collections.abc import Mapping

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.settings.telemetry.metrics_access import (
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
    """Settings of a process's metrics and traces: endpoint, intervals and sampling rate."""

    prometheus_port: int = setting(
        OFF,
        key="metrics.prometheus.port",
        at_least=OFF,
        at_most=65_535,
        doc="Ottla's own: port on which GET /metrics returns this process's metrics to Prometheus, "
        "and GET /healthz and /readyz answer probes; -1 for none, 0 for any free port.",
    )
    prometheus_host: str = setting(
        "",
        key="metrics.prometheus.host",
        kind=SettingKind.STRING,
        doc="Ottla's own: address of that port; by default every interface.",
    )
    prometheus_certificate: str | None = setting(
        None,
        key="metrics.prometheus.ssl.keystore.location",
        kind=SettingKind.STRING,
        doc="Ottla's own: PEM file with private key and certificate, with which that port uses "
        "HTTPS; it must not be readable by all users. A new file takes effect at once.",
    )
    prometheus_trust: str | None = setting(
        None,
        key="metrics.prometheus.ssl.truststore.location",
        kind=SettingKind.STRING,
        doc="Ottla's own: PEM file of CAs; requests for metrics must then present a certificate of "
        "one of them.",
    )
    prometheus_token: str | None = setting(
        None,
        key="metrics.prometheus.bearer.token",
        kind=SettingKind.PASSWORD,
        parse=parse_token,
        doc="Ottla's own: token that requests for metrics must contain (Authorization: Bearer).",
    )
    prometheus_users: Mapping[str, str] | None = setting(
        None,
        key="metrics.prometheus.basic.users",
        kind=SettingKind.PASSWORD,
        parse=parse_users,
        doc="Ottla's own: users that may request metrics (Authorization: Basic), as NAME:PASSWORD "
        "each.",
    )

    otlp_interval_ms: int = setting(
        60_000,
        key="metrics.otlp.interval.ms",
        at_least=0,
        doc="Ottla's own: interval at which this process's metrics are sent to the collectors of "
        "telemetry.otlp.endpoint; 0 for never.",
    )
    traces_sample_ratio: float = setting(
        0.0,
        key="telemetry.traces.sample.ratio",
        at_least=0,
        at_most=1,
        doc="Ottla's own: fraction of all requests whose traces are sent to the collectors of "
        "telemetry.otlp.endpoint. Above 0, requests that belong to an application's trace are "
        "included. Requires the extra otel.",
    )

    def __post_init__(self) -> None:
        """Raise ConfigError if the access rules of the endpoint are incomplete, or if there are
        such rules although the endpoint is not enabled."""
        if self.prometheus_access != OPEN_ACCESS and not self.is_prometheus_served:
            raise ConfigError(
                "metrics.prometheus.port",
                "is not set, and metrics.prometheus.* restricts access to it; set the port, or "
                "remove them",
            )

    @property
    def is_prometheus_served(self) -> bool:
        """True if the endpoint /metrics is enabled."""
        return self.prometheus_port != OFF

    @property
    def prometheus_access(self) -> MetricsAccess:
        """Access rules of the endpoint /metrics, and its certificate.

        Raises ConfigError if a setting is given without another setting that it requires.
        """
        return metrics_access(
            certificate=self.prometheus_certificate,
            trust=self.prometheus_trust,
            token=self.prometheus_token,
            users=self.prometheus_users or {},
        )
