"""Certificates of a cluster's nodes, and changes of nodes one after the other."""

from collections.abc import Mapping
from pathlib import Path

from ottla.cli.cluster.cluster_file import properties_of
from ottla.node.local.certificate_authority_driver import CertificateAuthority
from tests.cluster.conftest import Processes


class Certificates:
    """The authority of a cluster's nodes, and each node's file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = CertificateAuthority.make("nodes")
        self.trusted = directory / "trusted.pem"
        """The trust store of all nodes: one authority, or the old and the new one."""
        self.trusted.write_text(self._authority.certificate)

    def issue(self, name: str, node_id: int | None = None) -> None:
        """Write a node's certificate, over the one that it has."""
        issued = self._authority.issue(name, ["127.0.0.1"], node_id=node_id)
        issued.write(self.path(name))

    def settings(self, name: str) -> dict[str, str]:
        """Return a node's settings of its files."""
        return {
            "ssl.keystore.location": str(self.path(name)),
            "ssl.truststore.location": str(self.trusted),
        }

    def change_authority(self) -> None:
        """Trust a new authority beside the old one, and issue by the new one from now on."""
        old, self._authority = self._authority, CertificateAuthority.make("new nodes")
        self.trusted.write_text(old.certificate + self._authority.certificate)

    def write_newest(self, path: Path) -> None:
        """Write the authority alone by which certificates are issued now."""
        path.write_text(self._authority.certificate)

    def path(self, name: str) -> Path:
        """Return where a node's key and certificate are."""
        return self._directory / f"{name.replace(' ', '-')}.pem"


def id_of(name: str) -> int:
    """Return a node's id."""
    return int(name.split()[1])


def write_settings(cluster: Processes, name: str, settings: Mapping[str, str]) -> None:
    """Add settings to a node's file; the last line of a key holds."""
    path = properties_of(name.split()[0], cluster.node(name))
    with path.open("a") as file:
        file.writelines(f"{key}={value}\n" for key, value in settings.items())


def restart(cluster: Processes, name: str) -> None:
    """Restart a node, and wait until all is well."""
    cluster.end(name)
    cluster.start(name)
    cluster.wait_healthy()
