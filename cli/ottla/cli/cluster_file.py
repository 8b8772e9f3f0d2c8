"""The files of a local cluster: who runs where, and each node's .properties.

Ports and ids are picked once and kept, so that a cluster comes back where it was.
"""

import json
import os
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ottla.cli.common import CLUSTER_FILE, read_cluster_file
from ottla.model.errors import ConfigError

FIRST_CONTROLLER_ID = 101
FIRST_BROKER_ID = 1
PORT_DEFAULT = 9092


@dataclass(slots=True)
class Node:
    """One process of the cluster, as cluster.json names it."""

    id: int
    address: str
    dir: str
    pid: int = 0

    @property
    def port(self) -> int:
        """The port of the address."""
        return int(self.address.rpartition(":")[2])


@dataclass(slots=True)
class Plan:
    """A whole local cluster."""

    directory: Path
    host: str
    controllers: list[Node]
    brokers: list[Node]
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """The addresses clients are given."""
        return ",".join(node.address for node in self.brokers)

    def write(self) -> None:
        """Write cluster.json at once (a reader sees the old or the new one)."""
        path = self.directory / CLUSTER_FILE
        part = path.with_suffix(".part")
        content = {
            "bootstrap": self.bootstrap,
            "pid": os.getpid(),
            "controllers": [asdict(node) for node in self.controllers],
            "brokers": [asdict(node) for node in self.brokers],
        }
        part.write_text(json.dumps(content, indent=2) + "\n")
        part.replace(path)

    def write_properties(self) -> None:
        """Write every node's .properties file."""
        voters = ",".join(f"{node.id}@{node.address}" for node in self.controllers)
        count = len(self.brokers)
        shared = {
            "controller.quorum.voters": voters,
            "default.replication.factor": str(min(3, count)),
            **self.settings,
        }
        for node in self.controllers:
            texts = {
                "process.roles": "controller",
                "node.id": str(node.id),
                "listeners": f"CONTROLLER://{node.address}",
                "metadata.log.dir": node.dir,
                **shared,
            }
            _write_properties(properties_of("controller", node), texts)
        for node in self.brokers:
            texts = {
                "process.roles": "broker",
                "node.id": str(node.id),
                "listeners": f"PLAINTEXT://{node.address}",
                "log.dirs": node.dir,
                "offsets.topic.replication.factor": str(min(3, count)),
                "transaction.state.log.replication.factor": str(min(3, count)),
                "transaction.state.log.min.isr": str(min(2, count)),
                "group.initial.rebalance.delay.ms": "0",
                **shared,
            }
            _write_properties(properties_of("broker", node), texts)


def properties_of(role: str, node: Node) -> Path:
    """Return where a node's settings stand: beside its directory, never inside it."""
    return Path(node.dir).with_name(f"{role}-{node.id}.properties")


def make_plan(
    directory: Path, *, host: str, port: int | None, controllers: int, brokers: int
) -> Plan:
    """Plan a cluster in `directory`, or take up the one that is there.

    Without a `port` the first broker has the one it had, or the default; 0 means one that is free.
    """
    existing = directory / CLUSTER_FILE
    if existing.exists():
        return _taken_up(directory, existing, host, port)
    port = PORT_DEFAULT if port is None else port
    directory.mkdir(parents=True, exist_ok=True)
    root = directory.resolve()
    broker_ports = [port + index if port else free_port(host) for index in range(brokers)]
    for broker_port in broker_ports:
        check_port(host, broker_port)
    return Plan(
        directory=directory,
        host=host,
        controllers=[
            Node(
                id=FIRST_CONTROLLER_ID + index,
                address=f"{host}:{free_port(host)}",
                dir=str(root / f"controller-{FIRST_CONTROLLER_ID + index}"),
            )
            for index in range(controllers)
        ],
        brokers=[
            Node(
                id=FIRST_BROKER_ID + index,
                address=f"{host}:{broker_ports[index]}",
                dir=str(root / f"broker-{FIRST_BROKER_ID + index}"),
            )
            for index in range(brokers)
        ],
    )


def is_alive(pid: int) -> bool:
    """Say whether a process of this id runs (and is no zombie)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return pid > 0 and state not in ("Z", "X")


def is_node(pid: int) -> bool:
    """Say whether a process runs and is one of ours, so that no stranger is ever signalled."""
    try:
        return b"ottla" in Path(f"/proc/{pid}/cmdline").read_bytes() and is_alive(pid)
    except OSError:
        return False


def free_port(host: str) -> int:
    """Return a port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Raise ConfigError if somebody listens on the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                "--port",
                f"{host}:{port} cannot be listened on ({(error.strerror or '').lower()}); "
                "choose another with --port, or 0 for any free one",
            ) from None


def _taken_up(directory: Path, path: Path, host: str, port: int | None) -> Plan:
    found = read_cluster_file(path)
    nodes = {role: [Node(**node) for node in found[role]] for role in ("controllers", "brokers")}
    for index, broker in enumerate(nodes["brokers"]):
        if port and not is_node(broker.pid):
            broker.address = f"{broker.address.rpartition(':')[0]}:{port + index}"
    for node in [*nodes["controllers"], *nodes["brokers"]]:
        if is_node(node.pid):
            raise ConfigError(
                "--dir",
                f"{directory} is in use: process {node.pid} is its node {node.id}; "
                f"stop it with 'ottla down --dir {directory}'",
            )
        check_port(host, node.port)
    return Plan(directory, host, nodes["controllers"], nodes["brokers"])


def _write_properties(path: Path, texts: dict[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in texts.items()))
