"""Local cluster with authentication and ACLs: `ottla up --secure`, `ottla jepsen run --secure`.

Nodes authenticate each other over gRPC with certificates from the cluster's own authority. Clients
and brokers log in by SCRAM over TLS, and ACLs authorize them. The user `admin` is a super user.
Brokers are super users, or else have only the permissions of the initial ACLs. All files are in
`DIR/security`, which only its owner can read. Settings for clients are in `DIR/client.properties`
(keys of librdkafka, which Ottla's commands also read) and `DIR/client-java.properties`.
"""

import json
import secrets
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ottla.metadata.records import Record, acl_record, scram_credential_record
from ottla.model.errors import ConfigError
from ottla.model.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.security.scram import SCRAM_SHA_512, ScramCredential
from ottla.model.settings.endpoints import CLIENT_FILE
from ottla.model.values import frozen
from ottla.node.local.certificate_authority_driver import (
    CA_FILE,
    CertificateAuthority,
)
from ottla.node.local.private_files_driver import write_private

LISTENER = "SASL_SSL"
CONTROLLER_LISTENER = "CONTROLLER"
MECHANISM = SCRAM_SHA_512.name
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

ADMIN, BROKER = "admin", "broker"
USERS = (ADMIN, BROKER)
"""Names of the users that a secure local cluster has from the start: the operator, and the user
with which brokers log in to each other."""

ITERATIONS = 8_192
PASSWORD_BYTES = 24
SALT_BYTES = 16

USERS_FILE = "users.json"
JAVA_CLIENT_FILE = "client-java.properties"


@frozen
class SecureCluster:
    """Certificates and users of one local cluster with authentication and ACLs."""

    directory: Path
    """Directory of the secure cluster's certificates and settings."""
    passwords: Mapping[str, str]
    """Passwords of the secure cluster's users, by user name."""
    entries: Sequence[AclEntry] = ()
    """ACLs that the local cluster has from the start."""
    are_brokers_super: bool = True
    """True if brokers are super users.  Otherwise each broker has one ACL, for ClusterAction."""

    @property
    def admin(self) -> str:
        """Name of the super user `admin`, who may perform every operation."""
        return ADMIN

    @property
    def listener(self) -> str:
        """Name of the listener to which clients connect. It is also the name of the listener's
        security protocol."""
        return LISTENER

    @property
    def trusted(self) -> Path:
        """File with the root certificate of the cluster's certificate authority, which clients must
        trust."""
        return self._security / CA_FILE

    @property
    def client_file(self) -> Path:
        """Settings file of a client that logs in as admin, with the keys of librdkafka."""
        return self.directory / CLIENT_FILE

    @property
    def java_client_file(self) -> Path:
        """Settings file of a client that logs in as admin, with the keys of the Java client."""
        return self.directory / JAVA_CLIENT_FILE

    @property
    def _security(self) -> Path:
        return self.directory / "security"

    def controller_settings(self, node_id: int, address: str) -> dict[str, str]:
        """Return the security settings of a controller, which require certificates from other
        nodes."""
        return {
            "listeners": f"{CONTROLLER_LISTENER}://{address}",
            "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:SSL",
            **self._node_settings("controller", node_id),
        }

    def super_users(self) -> list[str]:
        """Return the principals of the super users: the admin, and the principals in the nodes'
        certificates."""
        users = [ADMIN, BROKER] if self.are_brokers_super else [ADMIN]
        nodes = [node for node in self._nodes() if self.are_brokers_super or _is_controller(node)]
        return [f"User:{user}" for user in users] + [f"User:CN={node}" for node in nodes]

    def broker_settings(self, node_id: int, address: str) -> dict[str, str]:
        """Return the security settings of a broker, which require that clients log in."""
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
        """Return the metadata records of the users and ACLs that exist from the start."""
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
        """Issue certificates for the nodes that have no certificate. `nodes` are pairs (role, id).
        With `is_renewal`, the certificates of all these nodes are replaced.

        The certificates are valid for `hosts`, and for the names of this machine.
        """
        authority = CertificateAuthority.opened(self._security, "Ottla local cluster")
        names = (*hosts, "localhost", "127.0.0.1", "::1")
        for role, node_id in nodes:
            path = self._certificate_of(role, node_id)
            if is_renewal or not path.exists():
                authority.issue(f"{role}-{node_id}", names, node_id=node_id).write(path)

    def client(self, user: str) -> dict[str, str]:
        """Return the settings with which a client logs in as a user, with the keys of
        librdkafka."""
        return {
            "security.protocol": LISTENER,
            "sasl.mechanisms": MECHANISM,
            "sasl.username": user,
            "sasl.password": self.passwords[user],
            "ssl.ca.location": str(self.trusted.resolve()),
        }

    def write_client_files(self, bootstrap: str) -> None:
        """Write the settings files with which clients log in as admin."""
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
    """Return ACLs that allow operations to a principal, on the resource `name` or by default on all
    resources of its type."""
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
    """Return the ACL that allows ClusterAction to a principal. A broker needs this operation for
    its work. The ACL allows nothing else."""
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
    """Return the secure local cluster in a directory. If the directory has no certificates and
    users, they are created."""
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
