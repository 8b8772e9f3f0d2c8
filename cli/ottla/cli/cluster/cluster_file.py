"""Reads and writes the files of a local cluster: cluster.json with the addresses of its nodes, and
each node's .properties.

Ids and ports are chosen once and stored, so that a cluster restarts with the same addresses. The
cluster id and each controller's directory id are kept too; `cluster_format` writes them into the
directories.
"""

import json
import os
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.common import CLUSTER_FILE, read_cluster_file
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint
from ottla.model.settings.security.sasl import is_sasl_key
from ottla.model.settings.security.security_keys import PROTOCOL_MAP
from ottla.model.settings.storage.tier import METADATA_PREFIX, STORE_URI, SYSTEM_ENABLE
from ottla.node.clock_driver import RealRng
from ottla.node.local.local_nodes_driver import free_port, free_ports
from ottla.node.local.private_files_driver import write_private
from ottla.storage.directories.meta_properties import uuid_to_text

if TYPE_CHECKING:
    from ottla.node.local.secure_cluster_driver import SecureCluster

FIRST_CONTROLLER_ID = 101
FIRST_BROKER_ID = 1
PORT_DEFAULT = 9092
PORT_END = 1 << 16
REPLICAS_DEFAULT = 3
"""Default replication factor of topics in a local cluster. In a smaller cluster, the number of
brokers is used."""
MIN_INSYNC_OF_THREE = 2
"""Default of min.insync.replicas in a local cluster, for topics with three replicas. With 2,
acks=all succeeds while one replica is down; with 1, a single remaining replica would acknowledge
records that no other broker has."""

PROMETHEUS_PORT = "metrics.prometheus.port"
TIER_REPLICAS = f"{METADATA_PREFIX}remote.log.metadata.topic.replication.factor"
TIER_MIN_ISR = f"{METADATA_PREFIX}remote.log.metadata.topic.min.isr"

REPLICATION_KEYS = (
    "default.replication.factor",
    "min.insync.replicas",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
    TIER_REPLICAS,
    TIER_MIN_ISR,
)


@dataclass(slots=True)
class ListedNode:
    """One node (process) of the local cluster, as stored in cluster.json."""

    id: int
    address: str
    dir: str
    pid: int = 0
    directory_id: str = ""
    """Directory id of a controller. A voter is identified by its node id and its directory id.
    Empty for a broker."""

    @property
    def port(self) -> int:
        """Port in the node's address."""
        return int(self.address.rpartition(":")[2])


@dataclass(slots=True)
class ClusterPlan:
    """The plan of a local cluster: its directory, controllers, brokers and settings."""

    directory: Path
    host: str
    controllers: list[ListedNode]
    brokers: list[ListedNode]
    cluster_id: str = ""
    min_insync_replicas: int = 1
    is_formatted: bool = False
    """True after the controllers of the local cluster have been formatted. They are never formatted
    again. A controller that has lost its directory does not know its vote, so it must not vote a
    second time."""
    settings: dict[str, str] = field(default_factory=dict)
    tier_uri: str = ""
    """URI of the object store to which the brokers copy segments of tiered topics. Empty if the
    cluster has no tiered storage."""
    secure: "SecureCluster | None" = None
    """Certificates and users of a secure local cluster, or None for a cluster without
    authentication."""

    @property
    def bootstrap(self) -> str:
        """Addresses of the local cluster's brokers for bootstrap.servers, as `host:port,…`."""
        return ",".join(node.address for node in self.brokers)

    def write(self) -> None:
        """Write the plan to cluster.json atomically: a reader sees either the old or the new
        file."""
        path = self.directory / CLUSTER_FILE
        part = path.with_suffix(".part")
        content = {
            "bootstrap": self.bootstrap,
            "pid": os.getpid(),
            "cluster_id": self.cluster_id,
            "min_insync_replicas": self.min_insync_replicas,
            "formatted": self.is_formatted,
            "secure": self.secure is not None,
            "tier": self.tier_uri,
            "controllers": [asdict(node) for node in self.controllers],
            "brokers": [asdict(node) for node in self.brokers],
        }
        part.write_text(json.dumps(content, indent=2) + "\n")
        part.replace(path)

    def write_properties(self) -> None:
        """Write the settings file (.properties) of every node of the local cluster."""
        voters = ",".join(f"{node.id}@{node.address}" for node in self.controllers)
        count = len(self.brokers)
        shared = {
            "controller.quorum.voters": voters,
            "default.replication.factor": str(min(REPLICAS_DEFAULT, count)),
            "min.insync.replicas": str(self.min_insync_replicas),
            **({SYSTEM_ENABLE: "true"} if self.tier_uri else {}),
            **self.settings,
        }
        # Login settings of clients are for brokers' listeners: a controller would refuse them.
        of_controllers = {
            key: text
            for key, text in shared.items()
            if key != PROTOCOL_MAP and not is_sasl_key(key) and not is_store_key(key)
        }
        for index, node in enumerate(self.controllers, start=count):
            texts = {
                "process.roles": "controller",
                "node.id": str(node.id),
                "listeners": f"CONTROLLER://{node.address}",
                "metadata.log.dir": node.dir,
                "log.file": str(log_file_of("controller", node)),
                **(self.secure.controller_settings(node.id, node.address) if self.secure else {}),
                **of_controllers,
                **self._own_settings(index),
            }
            self._write_properties(properties_of("controller", node), texts)
        for index, node in enumerate(self.brokers):
            texts = {
                "process.roles": "broker",
                "node.id": str(node.id),
                "listeners": f"PLAINTEXT://{node.address}",
                "log.dirs": node.dir,
                "log.file": str(log_file_of("broker", node)),
                "offsets.topic.replication.factor": str(min(REPLICAS_DEFAULT, count)),
                "transaction.state.log.replication.factor": str(min(REPLICAS_DEFAULT, count)),
                "transaction.state.log.min.isr": str(self.min_insync_replicas),
                "share.coordinator.state.topic.replication.factor": str(
                    min(REPLICAS_DEFAULT, count)
                ),
                "share.coordinator.state.topic.min.isr": str(self.min_insync_replicas),
                "group.initial.rebalance.delay.ms": "0",
                **self._tier_settings(),
                **(self.secure.broker_settings(node.id, node.address) if self.secure else {}),
                **shared,
                **self._own_settings(index),
            }
            self._write_properties(properties_of("broker", node), texts)

    def _tier_settings(self) -> dict[str, str]:
        """Return the brokers' settings of tiered storage."""
        if not self.tier_uri:
            return {}
        return {
            STORE_URI: self.tier_uri,
            TIER_REPLICAS: str(min(REPLICAS_DEFAULT, len(self.brokers))),
            TIER_MIN_ISR: str(self.min_insync_replicas),
        }

    def _write_properties(self, path: Path, texts: dict[str, str]) -> None:
        text = "".join(f"{key}={_escaped(value)}\n" for key, value in texts.items())
        write_private(path, text)  # a setting may be a password

    def _own_settings(self, index: int) -> dict[str, str]:
        """Return the settings that differ between the nodes of a local cluster: ports and
        directories. `index` counts the brokers first, then the controllers."""
        port = self.settings.get(PROMETHEUS_PORT, "")
        return {PROMETHEUS_PORT: str(int(port) + index)} if port.isdecimal() and int(port) else {}


def is_store_key(key: str) -> bool:
    """Return whether the key is a setting of the object store, or of the metadata of tiered
    storage. Only brokers use these settings."""
    return key.startswith(("remote.log.storage.", METADATA_PREFIX)) and key != SYSTEM_ENABLE


def properties_of(role: str, node: ListedNode) -> Path:
    """Return the path of a node's settings file in a local cluster. The file is beside the node's
    directory, never inside it."""
    return Path(node.dir).with_name(f"{role}-{node.id}.properties")


def log_file_of(role: str, node: ListedNode) -> Path:
    """Return the path of a node's log file. The log files of all nodes of a local cluster are in
    one directory."""
    return Path(node.dir).parent / "logs" / f"{role}-{node.id}.log"


def make_plan(
    directory: Path,
    *,
    host: str,
    port: int | None,
    controllers: int | None,
    brokers: int | None,
    is_secure: bool = False,
) -> ClusterPlan:
    """Return the plan of a local cluster that is stored in `directory`, or a new plan if the
    directory has none. A stored secure plan remains secure even if `is_secure` is False. Raises
    ConfigError if the stored plan does not match the arguments.

    Without a `port`, the first broker keeps its previous port or gets the default. Port 0 means any
    free port. Without counts of nodes, a stored plan keeps its counts, and a new plan has one
    controller and one broker.
    """
    existing = directory / CLUSTER_FILE
    if existing.exists():
        plan = _taken_up(directory, host, port)
        _check_counts(plan, controllers, brokers)
        if is_secure and plan.secure is None:
            raise ConfigError(
                "--secure",
                f"the cluster of {directory} was begun without; start another with --dir, or see "
                "docs/security.md for how a cluster changes over",
            )
        _make_secure(plan)
        return plan
    controllers, brokers = controllers or 1, brokers or 1
    port = PORT_DEFAULT if port is None else port
    directory.mkdir(parents=True, exist_ok=True)
    root = directory.resolve()
    free = free_ports(controllers + brokers, host)
    broker_ports = range(port, port + brokers) if port else free[controllers:]
    for broker_port in broker_ports:
        check_port(host, broker_port)
    rng = RealRng()
    plan = ClusterPlan(
        directory=directory,
        host=host,
        controllers=[
            ListedNode(
                id=FIRST_CONTROLLER_ID + index,
                address=f"{host}:{free[index]}",
                dir=str(root / f"controller-{FIRST_CONTROLLER_ID + index}"),
                directory_id=uuid_to_text(rng.uuid()),
            )
            for index in range(controllers)
        ],
        brokers=[
            ListedNode(
                id=FIRST_BROKER_ID + index,
                address=f"{host}:{broker_ports[index]}",
                dir=str(root / f"broker-{FIRST_BROKER_ID + index}"),
            )
            for index in range(brokers)
        ],
        cluster_id=uuid_to_text(rng.uuid()),
        min_insync_replicas=MIN_INSYNC_OF_THREE if brokers >= REPLICAS_DEFAULT else 1,
    )
    if is_secure:
        plan.secure = _opened(directory)
        _make_secure(plan)
    return plan


def _opened(directory: Path) -> "SecureCluster":
    """Open the certificates and users of a local cluster in a directory. Raises ConfigError if the
    packages that create them are not installed."""
    try:
        from ottla.node.local.secure_cluster_driver import open_secure_cluster
    except ImportError:
        hint = install_hint("secure")
        raise ConfigError(
            "--secure", f"needs cryptography, which is not installed; install it with: {hint}"
        ) from None
    return open_secure_cluster(directory)


def _make_secure(plan: ClusterPlan) -> None:
    """Create TLS certificates for the nodes of a plan that have none, and write the settings files
    of clients."""
    if plan.secure is None:
        return
    nodes = [("controller", node.id) for node in plan.controllers]
    nodes += [("broker", node.id) for node in plan.brokers]
    plan.secure.issue([plan.host], nodes)
    plan.secure.write_client_files(plan.bootstrap)


def check_replication(plan: ClusterPlan) -> None:
    """Raise ConfigError if a broker setting requires more replicas than the local cluster's plan
    has brokers."""
    count = len(plan.brokers)
    for key in REPLICATION_KEYS:
        wanted = plan.settings.get(key, "")
        if wanted.isdecimal() and int(wanted) > count:
            brokers = "there is one broker" if count == 1 else f"there are {count} brokers"
            raise ConfigError(
                key, f"is {wanted}, but {brokers}; start more with --brokers, or ask for fewer"
            )


def is_alive(pid: int) -> bool:
    """Return whether a process with the id `pid` is running and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return pid > 0 and state not in ("Z", "X")


def is_node(pid: int) -> bool:
    """Return whether a process is running and is a node of Ottla. Callers check this before they
    send a signal to a stored process id, so that no other process receives it."""
    try:
        return b"ottla" in Path(f"/proc/{pid}/cmdline").read_bytes() and is_alive(pid)
    except OSError:
        return False


def check_port(host: str, port: int) -> None:
    """Raise ConfigError, with the reason, if this process cannot bind a TCP port."""
    reason = _reason_port_is_taken(host, port)
    if reason is not None:
        raise ConfigError(
            "--port",
            f"{host}:{port} cannot be listened on ({reason}); "
            "choose another with --port, or 0 for any free one",
        )


def is_free(host: str, port: int) -> bool:
    """Return whether this process can bind a TCP port."""
    return _reason_port_is_taken(host, port) is None


def _reason_port_is_taken(host: str, port: int) -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return (error.strerror or str(error)).lower()
        except OverflowError:
            return f"the ports end below {PORT_END}"
    return None


def read_plan(directory: Path) -> ClusterPlan:
    """Return the plan of the local cluster that is stored in `directory`. The settings of its nodes
    are not part of it."""
    found = read_cluster_file(directory / CLUSTER_FILE)
    controllers, brokers = (
        [ListedNode(**node) for node in found[role]] for role in ("controllers", "brokers")
    )
    return ClusterPlan(
        directory=directory,
        host=brokers[0].address.rpartition(":")[0],
        controllers=controllers,
        brokers=brokers,
        cluster_id=found.get("cluster_id", ""),
        min_insync_replicas=found.get("min_insync_replicas", 1),
        is_formatted=found.get("formatted", True),
        secure=_opened(directory) if found.get("secure") else None,
        tier_uri=str(found.get("tier") or ""),
    )


def _taken_up(directory: Path, host: str, port: int | None) -> ClusterPlan:
    plan = read_plan(directory)
    plan.host = host
    for node in [*plan.controllers, *plan.brokers]:
        if is_node(node.pid):
            raise ConfigError(
                "--dir",
                f"{directory} is in use: process {node.pid} is its node {node.id}; "
                f"stop it with 'ottla down --dir {directory}'",
            )
    for index, broker in enumerate(plan.brokers):
        if port:
            broker.address = f"{broker.address.rpartition(':')[0]}:{port + index}"
        check_port(host, broker.port)
    for controller in plan.controllers:
        # Only this cluster uses the ports of its controllers, so they may change.
        if not is_free(host, controller.port):
            controller.address = f"{host}:{free_port(host)}"
    return plan


def _check_counts(plan: ClusterPlan, controllers: int | None, brokers: int | None) -> None:
    for option, asked, there in (
        ("--controllers", controllers, len(plan.controllers)),
        ("--brokers", brokers, len(plan.brokers)),
    ):
        if asked not in (None, there):
            raise ConfigError(
                option,
                f"is {asked}, but the cluster of {plan.directory} has {there}; "
                "leave it out, or start another cluster with --dir",
            )


def _escaped(value: str) -> str:
    """Return a setting's value escaped for one line of a .properties file. A parser of the file
    returns the original value."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
