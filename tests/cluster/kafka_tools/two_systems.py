"""Clusters of Ottla and of Kafka with the same nodes and settings: controllers and brokers, each a
process with a file of settings."""

import os
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.bench.kafka.kafka_server import (
    CLUSTER_ID,
    HOST,
    java_program,
    known_brokers,
    server_jvm,
)
from ottla.node.local.local_nodes_driver import (
    NODE_MODULE,
    end_nodes,
    free_ports,
    start_node,
    wait_until_ready,
)
from tests.cluster.kafka_tools.tool_process import ToolProcess

FIRST_BROKER, FIRST_CONTROLLER = 1, 101
READY_S, END_S, LOOK_AGAIN_S = 300.0, 30.0, 0.1
HEAP = "256M"
FLAGS = ("-XX:TieredStopAtLevel=1",)
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.cleaner.backoff.ms": "500",
}


class PlannedCluster(NamedTuple):
    """Controllers and brokers with their files of settings."""

    directory: Path
    controllers: dict[int, int]
    """Ports of the controllers, by node id."""
    brokers: dict[int, int]
    """Ports of the brokers, by node id."""

    @property
    def bootstrap(self) -> str:
        """Addresses of the brokers."""
        return ",".join(f"{HOST}:{port}" for port in self.brokers.values())

    @property
    def controller_bootstrap(self) -> str:
        """Addresses of the controllers."""
        return ",".join(f"{HOST}:{port}" for port in self.controllers.values())

    def data(self, node: int) -> Path:
        """Return the log directory of a node."""
        return self.directory / f"data-{node}"

    def file(self, node: int) -> Path:
        """Return the settings file of a node."""
        return self.directory / f"{node}.properties"

    def write_files(self) -> list[Path]:
        """Write the settings files; return them, controllers first."""
        replicas = str(min(3, len(self.brokers)))
        for node, port in {**self.controllers, **self.brokers}.items():
            is_controller = node in self.controllers
            listener = f"{'CONTROLLER' if is_controller else 'PLAINTEXT'}://{HOST}:{port}"
            own = {
                "process.roles": "controller" if is_controller else "broker",
                "node.id": str(node),
                "listeners": listener,
                "controller.quorum.bootstrap.servers": self.controller_bootstrap,
                "log.dirs": str(self.data(node)),
                "default.replication.factor": replicas,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": "1",
                "share.coordinator.state.topic.replication.factor": replicas,
            }
            if is_controller:
                own["early.start.listeners"] = "CONTROLLER"
            lines = (f"{key}={value}\n" for key, value in {**SETTINGS, **own}.items())
            self.file(node).write_text("".join(lines))
        return [self.file(node) for node in (*self.controllers, *self.brokers)]

    def format_options(self, file: Path) -> list[str]:
        """Return the options of `storage format` for the node of a settings file."""
        options = ["-t", CLUSTER_ID, "-c", str(file)]
        if file in map(self.file, self.controllers):
            voters = (
                f"{node}@{HOST}:{port}:{directory_id(node)}"
                for node, port in self.controllers.items()
            )
            options += ["--initial-controllers", ",".join(voters)]
        return options

    def wait_until_known(self) -> None:
        """Wait until each broker knows all brokers."""
        deadline = time.monotonic() + READY_S
        for port in self.brokers.values():
            while not self._are_all_known(port):
                assert time.monotonic() < deadline, f"{self.directory}: not ready in {READY_S} s"
                time.sleep(LOOK_AGAIN_S)

    def _are_all_known(self, port: int) -> bool:
        try:
            return known_brokers((HOST, port)) == len(self.brokers)
        except OSError:
            return False  # It does not listen yet.


def directory_id(node: int) -> str:
    """Return the directory id of a controller."""
    return urlsafe_b64encode(b"controller-%05d" % node).decode().rstrip("=")


def plan_cluster(directory: Path, count: int) -> PlannedCluster:
    """Plan a cluster of a number of controllers and brokers on free ports."""
    ports = free_ports(2 * count, HOST)
    return PlannedCluster(
        directory,
        dict(enumerate(ports[:count], FIRST_CONTROLLER)),
        dict(enumerate(ports[count:], FIRST_BROKER)),
    )


@contextmanager
def ottla_cluster(cluster: PlannedCluster) -> Iterator[None]:
    """Run a planned cluster of Ottla."""
    files = cluster.write_files()
    for file in files:
        command = [sys.executable, "-m", NODE_MODULE, "storage", "format"]
        subprocess.run([*command, *cluster.format_options(file)], check=True)
    with ExitStack() as outputs:
        nodes = []
        for file in files:
            output = outputs.enter_context(file.with_suffix(".out").open("wb"))
            nodes.append(start_node("server", file, output=output))
        try:
            wait_until_ready(nodes, READY_S)
            cluster.wait_until_known()
            yield
        finally:
            end_nodes([one.process for one in reversed(nodes)], END_S)


@contextmanager
def kafka_cluster(cluster: PlannedCluster, jars: Path, tools: ToolProcess) -> Iterator[None]:
    """Run a planned cluster of Kafka, without streams groups."""
    files = cluster.write_files()
    for file in files:
        words = ["format", *cluster.format_options(file), "--feature", "streams.version=0"]
        code, printed = tools.run("kafka.tools.StorageTool", words, "", int(READY_S))
        assert code == 0, printed
    java = [java_program(os.environ), *server_jvm(HEAP), *FLAGS, "-cp", f"{jars}/*"]
    with ExitStack() as running:
        for file in files:
            output = running.enter_context(file.with_suffix(".out").open("wb"))
            child = subprocess.Popen(
                [*java, "kafka.Kafka", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            running.callback(child.wait)
            running.callback(child.kill)
        cluster.wait_until_known()
        yield
