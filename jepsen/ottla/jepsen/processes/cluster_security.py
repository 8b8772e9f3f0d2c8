"""A secure cluster under test: certificates between nodes, logins over TLS, ACLs.

No client and no broker is a super user. The workloads' clients, and the harness' own status
requests, use the user `load` with ACLs for their operations. Each broker has one ACL, for
ClusterAction. Controllers are super users, because a starting controller sends requests to the
others before it has any ACLs.
"""

from collections.abc import Mapping
from pathlib import Path

from ottla.jepsen.processes.network import NodeEndpoint
from ottla.metadata.records import Record
from ottla.model.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.settings.endpoints import parse_address
from ottla.node.local.secure_cluster_driver import (
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
    *allow(
        PRINCIPAL,
        ResourceType.GROUP,
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.ALTER_CONFIGS,
    ),
    *allow(PRINCIPAL, ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
    *allow(PRINCIPAL, ResourceType.CLUSTER, AclOperation.DESCRIBE, name=CLUSTER_NAME),
)
"""ACLs that a secure cluster has for the workloads' operations. ACLs that allow Read or Write also
imply Describe. The harness itself needs Describe on the cluster."""


class ClusterSecurity:
    """The certificates, users and ACLs of one cluster. They are created before the settings files
    of its nodes."""

    def __init__(self, directory: Path, nodes: Mapping[tuple[str, int], NodeEndpoint]) -> None:
        self._secure = open_secure_cluster(
            directory, users=(ADMIN, BROKER, LOAD), entries=ENTRIES, are_brokers_super=False
        )
        self._nodes = nodes
        self._issue(is_renewal=False)

    @property
    def client(self) -> Mapping[str, str]:
        """Login settings of the workloads' clients, by librdkafka's keys."""
        return self._secure.client(LOAD)

    def renew(self) -> None:
        """Replace the certificate of every node while the node runs."""
        self._issue(is_renewal=True)

    def _issue(self, *, is_renewal: bool) -> None:
        for node, endpoint in self._nodes.items():
            hosts = [parse_address(one)[0] for one in (endpoint.binds, endpoint.advertised)]
            self._secure.issue(hosts, [node], is_renewal=is_renewal)

    def settings_of(self, role: str, id_: int) -> dict[str, str]:
        """Return the security settings of one node, including its listeners."""
        endpoint = self._nodes[role, id_]
        if role == "controller":
            return self._secure.controller_settings(id_, endpoint.binds)
        return {
            **self._secure.broker_settings(id_, endpoint.binds),
            "advertised.listeners": f"{LISTENER}://{endpoint.advertised}",
        }

    def first_records(self) -> list[Record]:
        """Return the records (users and ACLs) with which the cluster's metadata log begins."""
        return self._secure.first_records()
