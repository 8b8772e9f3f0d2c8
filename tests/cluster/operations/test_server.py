"""Real processes from Kafka's own settings files: one with both roles, and a pair with one each."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ottla.node.local.local_nodes_driver import (
    LocalNode,
    end_nodes,
    free_ports,
    start_node,
    wait_until_ready,
)
from tests.stock_files import (
    broker_settings,
    controller_settings,
    server_settings,
    write_settings,
)

pytestmark = pytest.mark.cluster

CLUSTER_ID = "K0lbLvxZTqKDhfSnhqsLnw"
READY_S = 60.0
CLIENT_S = 60.0


class Nodes:
    """Processes of `ottla server`, with their settings files in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: dict[str, LocalNode] = {}

    def format(self, name: str, settings: Mapping[str, str], *options: str) -> None:
        """Write a settings file and format its directories."""
        path = write_settings(self._path(name), settings)
        command = ["storage", "format", "-t", CLUSTER_ID, "-c", str(path), *options]
        subprocess.run([sys.executable, "-m", "ottla.cli", *command], check=True)

    def start(self, *names: str) -> None:
        """Start nodes, and wait until all of them serve."""
        for name in names:
            with (self.directory / f"{name}.log").open("ab") as log:
                self.running[name] = start_node("server", self._path(name), output=log)
        wait_until_ready([self.running[name] for name in names], READY_S)

    def log_of(self, name: str) -> str:
        """Return the output of a node."""
        return (self.directory / f"{name}.log").read_text()

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.properties"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Return starts of nodes whose processes end with the test."""
    found = Nodes(tmp_path)
    yield found
    end_nodes([node.process for node in found.running.values()], READY_S)


def send(bootstrap: str, values: list[bytes]) -> None:
    """Send records with acks=all, in order, and wait until all of them are acknowledged."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for value in values:
        producer.produce("records", value, on_delivery=on_delivery)
    assert producer.flush(CLIENT_S) == 0
    assert failures == []


def received(bootstrap: str, count: int) -> list[bytes | None]:
    """Return the first records of the topic, read by a group."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["records"])
    try:
        found: list[bytes | None] = []
        while len(found) < count:
            messages = consumer.consume(count, CLIENT_S)
            assert messages, found
            assert all(message.error() is None for message in messages)
            found += [message.value() for message in messages]
        return found
    finally:
        consumer.close()


VALUES = [b"%d" % number for number in range(100)]


def test_a_node_with_both_roles_takes_records_from_kafkas_stock_file(nodes: Nodes) -> None:
    clients, controller = free_ports(2)
    nodes.format("server", server_settings(nodes.directory / "data", clients, controller), "-s")
    nodes.start("server")
    send(f"localhost:{clients}", VALUES)
    assert received(f"localhost:{clients}", len(VALUES)) == VALUES

    node = nodes.running.pop("server")
    node.send(signal.SIGTERM)
    assert node.process.wait(READY_S) == 0
    nodes.start("server")
    assert received(f"localhost:{clients}", 0) == []
    send(f"localhost:{clients}", [b"after"])

    nodes.running.pop("server").kill()
    nodes.start("server")
    send(f"localhost:{clients}", [b"crashed"])
    warnings = [line for line in nodes.log_of("server").splitlines() if "ottla: warning" in line]
    assert len(set(warnings)) == 1, "keys of threads and share groups are one summary line"
    assert "num.io.threads, num.network.threads" in warnings[0]


def test_a_controller_and_a_broker_start_from_kafkas_stock_files(nodes: Nodes) -> None:
    clients, controller = free_ports(2)
    of_controller = controller_settings(nodes.directory / "controller", controller)
    nodes.format("controller", of_controller, "--standalone")
    of_broker = broker_settings(nodes.directory / "broker", clients, controller)
    nodes.format("broker", of_broker, "--no-initial-controllers")

    nodes.start("controller", "broker")

    send(f"localhost:{clients}", VALUES)
    assert received(f"localhost:{clients}", len(VALUES)) == VALUES


def test_three_nodes_with_both_roles_survive_the_loss_of_the_leader(nodes: Nodes) -> None:
    ports = [free_ports(2) for _ in range(3)]
    names = ["1", "2", "3"]
    ids = ("LgU8y1xiQCGivTtmzu3cCw", "AiWIXYG3R1aaK78FtukWQQ", "umC3TV_LRoCBnHHlVE-jIQ")
    voters = ",".join(
        f"{name}@localhost:{controller}:{id_}"
        for name, (_, controller), id_ in zip(names, ports, ids, strict=True)
    )
    for name, (clients, controller) in zip(names, ports, strict=True):
        settings = server_settings(nodes.directory / name, clients, controller) | {
            "node.id": name,
            "controller.quorum.bootstrap.servers": ",".join(
                f"localhost:{controller}" for _, controller in ports
            ),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
        }
        nodes.format(name, settings, "--initial-controllers", voters)
    nodes.start(*names)
    bootstrap = ",".join(f"localhost:{clients}" for clients, _ in ports)
    send(bootstrap, VALUES[:50])

    led = {name: nodes.log_of(name).count("controller.active") for name in names}
    leader = max(names, key=led.__getitem__)
    nodes.running.pop(leader).kill()
    send(bootstrap, VALUES[50:])
    nodes.start(leader)

    assert received(bootstrap, len(VALUES)) == VALUES
    assert "follows without a vote" not in nodes.log_of(leader)


def test_a_port_in_use_ends_a_node_with_a_sentence(nodes: Nodes) -> None:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        (controller,) = free_ports(1)
        settings = server_settings(nodes.directory / "data", taken.getsockname()[1], controller)
        nodes.format("server", settings, "-s")
        command = ["server", str(nodes.directory / "server.properties")]
        done = subprocess.run(
            [sys.executable, "-m", "ottla.cli", *command],
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )
    assert done.returncode == 1
    assert "cannot be opened" in done.stderr
    assert "Traceback" not in done.stderr
