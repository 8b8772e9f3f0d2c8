"""A local cluster that asks who everyone is: `ottla up --secure`, `ottla jepsen run --secure`.

Nodes know each other by certificates of the cluster's own authority (gRPC), clients and brokers log
in by SCRAM over TLS, and ACLs decide; the user `admin` may do everything, or, where brokers are no
super users, the users what the entries say that the cluster begins with.  All of it lies in
`DIR/security`, readable by its owner alone, with settings for clients in `DIR/client.properties`
(librdkafka's keys, which our commands read too) and `DIR/client-java.properties`.
"""

import json
import secrets
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ottla.metadata.records import Record, acl_record, scram_credential_record
from ottla.model.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.errors import ConfigError
from ottla.model.scram import SCRAM_SHA_512, ScramCredential
from ottla.model.settings.endpoints import CLIENT_FILE
from ottla.model.values import frozen
from ottla.node.certificate_authority_driver import (
    CA_FILE,
    CertificateAuthority,
)
from ottla.node.private_files_driver import write_private

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


@frozen
class SecureCluster:
    """The certificates and users of one local cluster."""

    directory: Path
    """That of the cluster."""
    passwords: Mapping[str, str]
    """By user."""
    entries: Sequence[AclEntry] = ()
    """ACLs that it begins with."""
    are_brokers_super: bool = True
    """Whether brokers may do everything; else they have one entry each, for ClusterAction."""

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
        users = [ADMIN, BROKER] if self.are_brokers_super else [ADMIN]
        nodes = [node for node in self._nodes() if self.are_brokers_super or _is_controller(node)]
        return [f"User:{user}" for user in users] + [f"User:CN={node}" for node in nodes]

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
        """Return the records of the users and entries that exist from the start."""
        users = [
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
            for user in self.passwords
        ]
        entries = [*self.entries]
        if not self.are_brokers_super:
            brokers = [f"CN={node}" for node in self._nodes() if not _is_controller(node)]
            entries += [cluster_action(f"User:{name}") for name in (BROKER, *brokers)]
        return [*users, *(acl_record(uuid.uuid4(), entry) for entry in entries)]

    def issue(
        self, hosts: Iterable[str], nodes: Sequence[tuple[str, int]], *, is_renewal: bool = False
    ) -> None:
        """Issue certificates to the nodes, (role, id) each, that have none; a renewal: to all.

        They hold for the hosts and this machine's own names.
        """
        authority = CertificateAuthority.opened(self._security, "Ottla local cluster")
        names = (*hosts, "localhost", "127.0.0.1", "::1")
        for role, node_id in nodes:
            path = self._certificate_of(role, node_id)
            if is_renewal or not path.exists():
                authority.issue(f"{role}-{node_id}", names, node_id=node_id).write(path)

    def client(self, user: str) -> dict[str, str]:
        """Return how a user logs in, by librdkafka's keys, which our clients read too."""
        return {
            "security.protocol": LISTENER,
            "sasl.mechanisms": MECHANISM,
            "sasl.username": user,
            "sasl.password": self.passwords[user],
            "ssl.ca.location": str(self.trusted.resolve()),
        }

    def write_client_files(self, bootstrap: str) -> None:
        """Write the settings of clients."""
        librdkafka = {"bootstrap.servers": bootstrap, **self.client(ADMIN)}
        java = {
            "bootstrap.servers": bootstrap,
            "security.protocol": LISTENER,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": _jaas(ADMIN, self.passwords[ADMIN]),
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

    def _nodes(self) -> list[str]:
        return sorted(path.stem for path in self._security.glob("*-[0-9]*.pem"))

    def _certificate_of(self, role: str, node_id: int) -> Path:
        return self._security / f"{role}-{node_id}.pem"


def allow(
    principal: str,
    type_: ResourceType,
    *operations: AclOperation,
    name: str = "*",
) -> list[AclEntry]:
    """Return entries that allow operations on a resource; without a name, on all of its type."""
    return [
        AclEntry(
            resource_type=type_,
            resource_name=name,
            pattern_type=PatternType.LITERAL,
            principal=principal,
            host="*",
            operation=operation,
            permission=AclPermission.ALLOW,
        )
        for operation in operations
    ]


def cluster_action(principal: str) -> AclEntry:
    """Return the entry by which a broker may do its work, and nothing else."""
    (entry,) = allow(
        principal, ResourceType.CLUSTER, AclOperation.CLUSTER_ACTION, name=CLUSTER_NAME
    )
    return entry


def open_secure_cluster(
    directory: Path,
    *,
    users: Sequence[str] = USERS,
    entries: Sequence[AclEntry] = (),
    are_brokers_super: bool = True,
) -> SecureCluster:
    """Return the users of a directory's cluster, made when there are none yet."""
    path = directory / "security" / USERS_FILE
    if not path.exists():
        passwords = {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in users}
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, json.dumps(passwords, indent=2) + "\n")
    try:
        found = json.loads(path.read_text())
        passwords = {user: str(found[user]) for user in users}
    except (ValueError, KeyError, TypeError):
        raise ConfigError("--secure", f"{path} was not written by 'ottla up'; remove it") from None
    return SecureCluster(directory, passwords, entries, are_brokers_super)


def _is_controller(node: str) -> bool:
    return node.startswith("controller-")


def _jaas(user: str, password: str) -> str:
    return f'{SCRAM_LOGIN} required username="{user}" password="{password}";'
