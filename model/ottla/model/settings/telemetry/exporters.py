"""Settings of metrics exporters. A node may export to OTLP collectors, to a topic, and to plug-ins
at the same time."""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla.model.errors import ConfigError
from ottla.model.limits import MIB
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.settings.endpoints import is_host
from ottla.model.settings.security.tls import KEYSTORE_LOCATION, TRUSTSTORE_LOCATION, TlsConfig
from ottla.model.values import frozen

PLUGIN_PREFIX = "telemetry.exporter."
"""Prefix of the settings of plug-ins. The settings of the plug-in NAME start with
`telemetry.exporter.NAME.`, and only the plug-in checks them."""

DEFAULT_PORTS = {"grpc": 4317, "grpcs": 4317, "http": 4318, "https": 4318}
"""Default ports of OTLP, by the scheme of the collector's URL."""

ENCRYPTED_SCHEMES = ("grpcs", "https")
OTLP_TRUSTSTORE = f"telemetry.otlp.{TRUSTSTORE_LOCATION}"
OTLP_KEYSTORE = f"telemetry.otlp.{KEYSTORE_LOCATION}"

_HEADER_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_HEADER_VALUE = re.compile(r"[ -~]*")


class OtlpEndpoint(NamedTuple):
    """Address of one OTLP collector. `scheme` is grpc, grpcs, http or https. `path` is the part of
    an http URL before `/v1/metrics`."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def is_encrypted(self) -> bool:
        """True if the connection to the collector uses TLS."""
        return self.scheme in ENCRYPTED_SCHEMES

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_otlp_endpoints(text: str) -> tuple[OtlpEndpoint, ...]:
    """a list of grpc://host:4317, grpcs://…, http://host:4318 or https://…, each once.

    Returns the collectors. Raises ValueError if the text is malformed. Error messages quote the
    first line as the description of valid texts.
    """
    found = tuple(_endpoint(part.strip()) for part in text.split(",") if part.strip())
    if len(set(found)) != len(found):
        raise ValueError(text)
    return found


def parse_headers(text: str) -> tuple[tuple[str, str], ...]:
    """a list of name=value.

    Returns the headers. Raises ValueError if the text is malformed. Error messages quote the first
    line as the description of valid texts.
    """
    pairs = []
    for part in text.split(","):
        if part.strip():
            name, equals, value = (side.strip() for side in part.partition("="))
            if not (equals and _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
                raise ValueError(text)
            pairs.append((name.lower(), value))
    return tuple(pairs)


def _endpoint(text: str) -> OtlpEndpoint:
    parts = urlsplit(text)
    host, path = parts.hostname or "", parts.path.rstrip("/")
    if (
        parts.scheme not in DEFAULT_PORTS
        or not is_host(host)
        or parts.query
        or parts.fragment
        or parts.username is not None
        or (path and parts.scheme in ("grpc", "grpcs"))
    ):
        raise ValueError(text)
    return OtlpEndpoint(parts.scheme, host, parts.port or DEFAULT_PORTS[parts.scheme], path)


@frozen(kw_only=True)
class ExporterConfig:
    """Settings of the metrics exporters of one node, and the limits of their queues."""

    otlp_endpoints: tuple[OtlpEndpoint, ...] = setting(
        (),
        key="telemetry.otlp.endpoint",
        kind=SettingKind.LIST,
        parse=parse_otlp_endpoints,
        text="",
        doc="Ottla's own: OTLP collectors to which metrics are sent, as grpc://host:4317 or "
        "http://host:4318 each; grpcs and https are encrypted.",
    )
    otlp_headers: tuple[tuple[str, str], ...] = setting(
        (),
        key="telemetry.otlp.headers",
        kind=SettingKind.PASSWORD,
        parse=parse_headers,
        text="",
        doc="Ottla's own: headers that collectors require, as NAME=VALUE each.",
    )
    otlp_truststore_location: str | None = setting(
        None,
        key=OTLP_TRUSTSTORE,
        kind=SettingKind.STRING,
        doc="Ottla's own: PEM file with the certificates of the CAs that are trusted for "
        "collectors with grpcs and https; by default those of the system. A new file takes effect "
        "while the node runs.",
    )
    otlp_keystore_location: str | None = setting(
        None,
        key=OTLP_KEYSTORE,
        kind=SettingKind.STRING,
        doc="Ottla's own: PEM file with this node's certificate and private key for collectors "
        "with grpcs and https. A new file takes effect while the node runs.",
    )
    otlp_compression: str = setting(
        "none",
        key="telemetry.otlp.compression",
        one_of=("none", "gzip"),
        doc="Ottla's own: compression of requests to collectors.",
    )
    otlp_timeout_ms: int = setting(
        10_000,
        key="telemetry.otlp.timeout.ms",
        at_least=1,
        doc="Ottla's own: time after which a batch without a response is sent to a collector "
        "again.",
    )
    topic_enable: bool = setting(
        False,
        key="telemetry.topic",
        doc="Ottla's own: whether clients' pushes are written to the topic __client_metrics. With "
        "ACLs the brokers' user needs Create and Write on it, unless it is a super user.",
    )
    plugins: tuple[str, ...] = setting(
        (),
        key="telemetry.exporters",
        doc="Ottla's own: names of plug-ins (entry points ottla.telemetry_exporter) that receive "
        "clients' pushes.",
    )
    queue_pushes_max: int = setting(
        10_000,
        key="telemetry.queue.max.pushes",
        at_least=1,
        doc="Ottla's own: maximum number of pushes queued per exporter; the oldest are dropped "
        "beyond it.",
    )
    queue_bytes_max: int = setting(
        32 * MIB,
        key="telemetry.queue.max.bytes",
        at_least=1,
        doc="Ottla's own: maximum number of bytes queued per exporter; the oldest pushes are "
        "dropped beyond it.",
    )
    linger_ms: int = setting(
        200,
        key="telemetry.linger.ms",
        at_least=0,
        doc="Ottla's own: time for which an exporter waits for more pushes before it sends them.",
    )

    def __post_init__(self) -> None:
        if any(endpoint.is_encrypted for endpoint in self.otlp_endpoints):
            return
        for key in self.otlp_tls.spellings.values():
            raise ConfigError(
                key,
                "is set, and no collector in telemetry.otlp.endpoint is encrypted; write "
                "grpcs://… or https://… there, or remove it",
            )

    @property
    def otlp_tls(self) -> TlsConfig:
        """TLS settings for collectors with the schemes grpcs and https."""
        given = {
            KEYSTORE_LOCATION: (OTLP_KEYSTORE, self.otlp_keystore_location),
            TRUSTSTORE_LOCATION: (OTLP_TRUSTSTORE, self.otlp_truststore_location),
        }
        return TlsConfig(
            certificate_location=self.otlp_keystore_location or None,
            trust_location=self.otlp_truststore_location or None,
            spellings={bare: key for bare, (key, path) in given.items() if path},
        )
