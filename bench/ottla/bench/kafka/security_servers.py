"""Ottla and Apache Kafka with the same listeners: plain, TLS 1.3, TLS 1.2, and two listeners that
require a login, one of which has TLS 1.3.

Both run on loopback with the same self-signed certificate. Users log in by SASL/PLAIN. Clients
without a login are super users, like the nodes.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from ottla.bench.kafka.beside_kafka import OTTLA_SETTINGS
from ottla.bench.kafka.comparison import OURS, THEIRS
from ottla.bench.kafka.kafka_server import open_kafka
from ottla.bench.local_cluster import open_cluster_in
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.security.authorizer import (
    AUTHORIZER_CLASS,
    STANDARD_AUTHORIZER,
    SUPER_USERS,
)
from ottla.model.settings.security.jaas import PLAIN_MODULE
from ottla.model.settings.security.sasl import PLAIN
from ottla.node.local.local_nodes_driver import (
    NotReadyError,
    end_nodes,
    free_ports,
    start_node,
    wait_until_ready,
)

HOST = "127.0.0.1"
PLAINTEXT, TLS13, TLS12, USERS = "PLAINTEXT", "TLS13", "TLS12", "USERS"
TLS_USERS = "TLS_USERS"
"""Listener with TLS 1.3 that requires a login."""
TLS_VERSIONS = {TLS13: "TLSv1.3", TLS12: "TLSv1.2"}
USER, PASSWORD = "load", "secret"
HOLDS = r'ottla_loop_pause_seconds_bucket\{le="([^"]+)"\} (\S+)'
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0

WITH_AUTHORIZER = {AUTHORIZER_CLASS: STANDARD_AUTHORIZER, SUPER_USERS: "User:ANONYMOUS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityServer:
    """One server of the security benchmark: addresses of its listeners, and its processes."""

    addresses: Mapping[str, str]
    """Address of each listener as `host:port`, by the listener's name."""
    pids: tuple[int, ...]
    metrics_port: int = 0
    """Port at which Ottla's broker exports its metrics, or 0 for Kafka, which has no such port
    here."""

    def long_holds(self) -> int:
        """Return the number of times that the event loop of Ottla's broker was blocked for more
        than 20 ms."""
        with urlopen(f"http://{HOST}:{self.metrics_port}/metrics") as answer:
            text = answer.read().decode()
        counts = dict(re.findall(HOLDS, text))
        return int(float(counts["+Inf"]) - float(counts["0.02"]))

    def address(self, listener: str) -> tuple[str, int]:
        """Return host and port of the listener with the given name."""
        host, _, port = self.addresses[listener].rpartition(":")
        return host, int(port)


def make_certificate(directory: Path) -> None:
    """Create a self-signed certificate (`ca.pem`), and one file that also contains its key
    (`server.pem`).

    Raises ConfigError if there is no `openssl`.
    """
    key, certificate = directory / "key.pem", directory / "ca.pem"
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", "/CN=broker", "-keyout", str(key)),
        *("-addext", f"subjectAltName=IP:{HOST}", "-out", str(certificate)),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        raise ConfigError("openssl", "is missing; it makes the certificate") from None
    whole = directory / "server.pem"
    whole.touch(mode=0o600)
    whole.write_bytes(key.read_bytes() + certificate.read_bytes())


def tls_settings(directory: Path) -> dict[str, str]:
    """Return the settings of the listeners with TLS 1.3 and TLS 1.2, which have the same meaning
    for Ottla and Kafka."""
    found = {_passwords_key(TLS_USERS): _passwords()}
    for listener, version in {**TLS_VERSIONS, TLS_USERS: TLS_VERSIONS[TLS13]}.items():
        prefix = f"listener.name.{listener.lower()}.ssl."
        found[f"{prefix}keystore.type"] = "PEM"
        found[f"{prefix}keystore.location"] = str(directory / "server.pem")
        found[f"{prefix}enabled.protocols"] = version
        found[f"{prefix}protocol"] = version
    return found


def _passwords_key(listener: str) -> str:
    """Return the setting of a listener that contains the passwords of its users."""
    return f"listener.name.{listener.lower()}.plain.sasl.jaas.config"


def _passwords() -> str:
    return f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";'


@contextmanager
def open_ottla(
    directory: Path, settings: Mapping[str, str], *, has_authorizer: bool
) -> Iterator[SecurityServer]:
    """Start a controller and a broker of Ottla in an empty directory, and yield them. They are
    stopped at the end of the block.

    Raises RefusedError if one of them does not start.
    """
    with open_cluster_in(directory, controllers=1, brokers=1) as cluster:
        names = [name.replace(" ", "-") for name in cluster.pids]
    protocols = {
        PLAINTEXT: "PLAINTEXT",
        TLS13: "SSL",
        TLS12: "SSL",
        USERS: "SASL_PLAINTEXT",
        TLS_USERS: "SASL_SSL",
    }
    *free, metrics_port = free_ports(len(protocols) + 1, HOST)
    ports = dict(zip(protocols, free, strict=True))
    of_all = WITH_AUTHORIZER if has_authorizer else {}
    of_broker = {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
        "inter.broker.listener.name": PLAINTEXT,
        "sasl.enabled.mechanisms": PLAIN,
        _passwords_key(USERS): _passwords(),
        "metrics.prometheus.port": str(metrics_port),
        **OTTLA_SETTINGS,
        **settings,
    }
    nodes = []
    try:
        with (directory / "nodes.out").open("wb") as out:
            for name in sorted(names, reverse=True):  # The controller is started first.
                role = name.partition("-")[0]
                given = {**of_all, **(of_broker if role == "broker" else {})}
                options = [f"--set={key}={value}" for key, value in given.items()]
                properties = directory / f"{name}.properties"
                nodes.append(start_node(role, properties, options=options, output=out))
            wait_until_ready(nodes, READY_TIMEOUT_S)
        addresses = {name: f"{HOST}:{port}" for name, port in ports.items()}
        yield SecurityServer(
            addresses=addresses, pids=tuple(node.pid for node in nodes), metrics_port=metrics_port
        )
    except NotReadyError as error:
        lines = (directory / "nodes.out").read_text(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it printed nothing"
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Ottla: {error}: {last}") from None
    finally:
        end_nodes([node.process for node in nodes], STOP_TIMEOUT_S)


@contextmanager
def _open_kafka(
    jars: Path, directory: Path, settings: Mapping[str, str], *, has_authorizer: bool
) -> Iterator[tuple[str, SecurityServer]]:
    own = dict(settings)
    if has_authorizer:
        own |= WITH_AUTHORIZER
    listeners = {**dict.fromkeys(TLS_VERSIONS, "SSL"), TLS_USERS: "SASL_SSL"}
    with open_kafka(jars, directory, own, users={USER: PASSWORD}, listeners=listeners) as kafka:
        assert kafka.users_address is not None
        users = "{}:{}".format(*kafka.users_address)
        addresses = {PLAINTEXT: kafka.bootstrap, USERS: users, **kafka.listeners}
        yield kafka.version, SecurityServer(addresses=addresses, pids=(kafka.pid,))


@contextmanager
def open_pair(
    jars: Path, certificates: Path, settings: Mapping[str, str], *, has_authorizer: bool
) -> Iterator[tuple[str, dict[str, SecurityServer]]]:
    """Start Ottla and Kafka with the same settings. Yields Kafka's version, and the two servers.

    Raises RefusedError if one does not start.
    """
    given = {**settings, **tls_settings(certificates)}
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-kafka-") as theirs,
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as ours,
        _open_kafka(jars, Path(theirs), given, has_authorizer=has_authorizer) as (version, kafka),
        open_ottla(Path(ours), given, has_authorizer=has_authorizer) as ottla,
    ):
        yield version, {OURS: ottla, THEIRS: kafka}
