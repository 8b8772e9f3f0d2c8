"""A secure cluster under test: certificates between nodes, logins over TLS, ACLs.

No client and no broker is a super user.  The workloads' clients, and the harness where it asks how
the cluster is, are the user `load` with entries for what they do; each broker has one entry, for
ClusterAction.  Controllers are super users: one that starts asks the others before it has entries.
"""

from collections.abc import Mapping
from pathlib import Path

from ottla.jepsen.processes.network import Seat
from ottla.metadata.records import Record
from ottla.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.settings.endpoints import parse_address
from ottla.node.secure_cluster_driver import (
    ADMIN,
    BROKER,
    LISTENER,
    allow,
    open_secure_cluster,
)

LOAD = "load"
PRINCIPAL = f"User:{LOAD}"
ENTRIES = (
    *allow(
        PRINCIPAL,
        ResourceType.TOPIC,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.ALTER_CONFIGS,
    ),
    *allow(PRINCIPAL, ResourceType.GROUP, AclOperation.READ, AclOperation.DELETE),
    *allow(PRINCIPAL, ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
    *allow(PRINCIPAL, ResourceType.CLUSTER, AclOperation.DESCRIBE, name=CLUSTER_NAME),
)
"""What workloads do; those that read imply Describe.  Describe of the cluster is the harness'."""


class ClusterSecurity:
    """The certificates, users and entries of one cluster; made before its nodes' files."""

    def __init__(self, directory: Path, nodes: Mapping[tuple[str, int], Seat]) -> None:
        self._secure = open_secure_cluster(
            directory, users=(ADMIN, BROKER, LOAD), entries=ENTRIES, are_brokers_super=False
        )
        self._nodes = nodes
        self._issue(is_renewal=False)

    @property
    def client(self) -> Mapping[str, str]:
        """How the workloads' clients log in, by librdkafka's keys."""
        return self._secure.client(LOAD)

    def renew(self) -> None:
        """Give every node another certificate, while it runs."""
        self._issue(is_renewal=True)

    def _issue(self, *, is_renewal: bool) -> None:
        for node, seat in self._nodes.items():
            hosts = [parse_address(one)[0] for one in (seat.binds, seat.advertised)]
            self._secure.issue(hosts, [node], is_renewal=is_renewal)

    def settings_of(self, role: str, id_: int) -> dict[str, str]:
        """Return one node's settings, its listeners among them."""
        seat = self._nodes[role, id_]
        if role == "controller":
            return self._secure.controller_settings(id_, seat.binds)
        return {
            **self._secure.broker_settings(id_, seat.binds),
            "advertised.listeners": f"{LISTENER}://{seat.advertised}",
        }

    def first_records(self) -> list[Record]:
        """Return what the cluster's metadata begins with."""
        return self._secure.first_records()
