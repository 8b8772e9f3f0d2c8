"""A local cluster that asks who everyone is: `ottla up --secure`.

Nodes know each other by certificates of the cluster's own authority (gRPC), clients and brokers log
in by SCRAM over TLS, and ACLs decide; the user `admin` may do everything.  All of it lies in
`DIR/security`, readable by its owner alone, with settings for clients in `DIR/client.properties`
(librdkafka's keys, which our commands read too) and `DIR/client-java.properties`.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ottla.cli.common import CLIENT_FILE
from ottla.cli.security.certificate_authority import (
    CA_FILE,
    CertificateAuthority,
    write_private,
)
from ottla.metadata.records import Record, scram_credential_record
from ottla.model.errors import ConfigError
from ottla.model.scram import SCRAM_SHA_512, ScramCredential

LISTENER = "SASL_SSL"
CONTROLLER_LISTENER = "CONTROLLER"
MECHANISM = SCRAM_SHA_512.name
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

ADMIN, BROKER = "admin", "broker"
USERS = (ADMIN, BROKER)
"""Who exists from the start: the operator, and the brokers at each other."""

ITERATIONS = 8_192
PASSWORD_BYTES = 24
SALT_BYTES = 16

USERS_FILE = "users.json"
JAVA_CLIENT_FILE = "client-java.properties"


@dataclass(frozen=True, slots=True)
class SecureCluster:
    """The certificates and users of one local cluster."""

    directory: Path
    """That of the cluster."""
    passwords: Mapping[str, str]
    """By user."""

    @property
    def trusted(self) -> Path:
        """The certificate of the authority: what clients trust."""
        return self._security / CA_FILE

    @property
    def client_file(self) -> Path:
        """The settings of a client that is the user admin, by librdkafka's keys."""
        return self.directory / CLIENT_FILE

    @property
    def java_client_file(self) -> Path:
        """The same by the Java client's keys."""
        return self.directory / JAVA_CLIENT_FILE

    @property
    def _security(self) -> Path:
        return self.directory / "security"

    def controller_settings(self, node_id: int, address: str) -> dict[str, str]:
        """Return what makes a controller of this cluster ask for certificates."""
        return {
            "listeners": f"{CONTROLLER_LISTENER}://{address}",
            "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:SSL",
            **self._node_settings("controller", node_id),
        }

    def super_users(self) -> list[str]:
        """Return who may do everything: the admin, and the nodes as they show themselves."""
        nodes = sorted(path.stem for path in self._security.glob("*-[0-9]*.pem"))
        return [f"User:{user}" for user in USERS] + [f"User:CN={node}" for node in nodes]

    def broker_settings(self, node_id: int, address: str) -> dict[str, str]:
        """Return what makes a broker of this cluster ask for logins."""
        login = _jaas(BROKER, self.passwords[BROKER])
        scram = f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}"
        return {
            "listeners": f"{LISTENER}://{address}",
            "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:SSL,{LISTENER}:{LISTENER}",
            "inter.broker.listener.name": LISTENER,
            "sasl.enabled.mechanisms": f"{MECHANISM},SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"{scram}.sasl.jaas.config": login,
            **self._node_settings("broker", node_id),
        }

    def first_records(self) -> list[Record]:
        """Return the records of the users that exist from the start."""
        return [
            scram_credential_record(
                user,
                SCRAM_SHA_512.number,
                ScramCredential.of_password(
                    SCRAM_SHA_512,
                    self.passwords[user],
                    secrets.token_hex(SALT_BYTES).encode(),
                    ITERATIONS,
                ),
            )
            for user in USERS
        ]

    def issue(self, host: str, nodes: Sequence[tuple[str, int]]) -> None:
        """Issue the certificates that nodes, (role, id) each, do not have yet."""
        authority = CertificateAuthority.opened(self._security, "Ottla local cluster")
        hosts = dict.fromkeys((host, "localhost", "127.0.0.1", "::1"))
        for role, node_id in nodes:
            path = self._certificate_of(role, node_id)
            if not path.exists():
                authority.issue(f"{role}-{node_id}", hosts, node_id=node_id).write(path)

    def write_private(self, path: Path, text: str) -> None:
        """Write a file that its owner alone may read."""
        write_private(path, text)

    def write_client_files(self, bootstrap: str) -> None:
        """Write the settings of clients."""
        password = self.passwords[ADMIN]
        shared = {"bootstrap.servers": bootstrap, "security.protocol": LISTENER}
        librdkafka = {
            **shared,
            "sasl.mechanisms": MECHANISM,
            "sasl.username": ADMIN,
            "sasl.password": password,
            "ssl.ca.location": str(self.trusted.resolve()),
        }
        java = {
            **shared,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": _jaas(ADMIN, password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted.resolve()),
        }
        for path, texts in ((self.client_file, librdkafka), (self.java_client_file, java)):
            write_private(path, "".join(f"{key}={text}\n" for key, text in texts.items()))

    def _node_settings(self, role: str, node_id: int) -> dict[str, str]:
        return {
            "controller.listener.names": CONTROLLER_LISTENER,
            "ssl.keystore.location": str(self._certificate_of(role, node_id).resolve()),
            "ssl.truststore.location": str(self.trusted.resolve()),
            "authorizer.class.name": AUTHORIZER,
            "super.users": ";".join(self.super_users()),
        }

    def _certificate_of(self, role: str, node_id: int) -> Path:
        return self._security / f"{role}-{node_id}.pem"


def open_secure_cluster(directory: Path) -> SecureCluster:
    """Return the users of a directory's cluster, made when there are none yet."""
    path = directory / "security" / USERS_FILE
    if not path.exists():
        passwords = {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in USERS}
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, json.dumps(passwords, indent=2) + "\n")
    try:
        found = json.loads(path.read_text())
        passwords = {user: str(found[user]) for user in USERS}
    except (ValueError, KeyError, TypeError):
        raise ConfigError("--secure", f"{path} was not written by 'ottla up'; remove it") from None
    return SecureCluster(directory, passwords)


def _jaas(user: str, password: str) -> str:
    return f'{SCRAM_LOGIN} required username="{user}" password="{password}";'
