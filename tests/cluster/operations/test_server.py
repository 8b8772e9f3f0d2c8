"""Real processes from Kafka's own settings files: one with both roles, and a pair with one each."""

import socket
import subprocess
import sys
from http import HTTPStatus
from urllib.request import urlopen

import pytest

from ottla.node.local.local_nodes_driver import free_ports
from tests.cluster.operations.server_nodes import READY_S, Nodes, received, send
from tests.stock_files import broker_settings, controller_settings, server_settings

pytestmark = pytest.mark.cluster

VALUES = [b"%d" % number for number in range(100)]


def test_a_node_with_both_roles_takes_records_from_kafkas_stock_file(nodes: Nodes) -> None:
    clients, controller = free_ports(2)
    nodes.format("server", server_settings(nodes.directory / "data", clients, controller), "-s")
    nodes.start("server")
    send(f"localhost:{clients}", VALUES)
    assert received(f"localhost:{clients}", len(VALUES)) == VALUES

    nodes.stop("server")
    nodes.start("server")
    assert received(f"localhost:{clients}", 0) == []
    send(f"localhost:{clients}", [b"after"])

    nodes.running.pop("server").kill()
    nodes.start("server")
    send(f"localhost:{clients}", [b"crashed"])
    assert "is registered and alive" not in nodes.log_of("server"), "it waits for no session"
    warnings = [line for line in nodes.log_of("server").splitlines() if "ottla: warning" in line]
    assert len(set(warnings)) == 1, "keys of threads and share groups are one summary line"
    assert "num.io.threads, num.network.threads" in warnings[0]


def test_a_node_with_both_roles_exports_the_metrics_of_both_once(nodes: Nodes) -> None:
    clients, controller, metrics = free_ports(3)
    settings = server_settings(nodes.directory / "data", clients, controller)
    nodes.format("server", settings | {"metrics.prometheus.port": str(metrics)}, "-s")
    nodes.start("server")
    send(f"localhost:{clients}", VALUES)

    with urlopen(f"http://localhost:{metrics}/readyz", timeout=READY_S) as ready:
        assert ready.status == HTTPStatus.OK
    with urlopen(f"http://localhost:{metrics}/metrics", timeout=READY_S) as answer:
        lines = answer.read().decode().splitlines()

    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    values = {line.partition(" ")[0]: line.rpartition(" ")[2] for line in lines}
    assert values["kafka_controller_kafkacontroller_activecontrollercount"] == "1"
    assert "kafka_server_replicamanager_partitioncount" in values


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
