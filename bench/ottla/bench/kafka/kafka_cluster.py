"""Apache Kafka as a cluster on loopback: controllers and brokers, one process each.

Heaps are small, because all nodes share one machine with the load.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ottla.bench.kafka.kafka_server import (
    CLUSTER_ID,
    HOST,
    LOOK_AGAIN_S,
    READY_TIMEOUT_S,
    failure_of,
    format_directory,
    java_program,
    known_brokers,
    server_jvm,
    stop_server,
)
from ottla.bench.local_cluster import RunningCluster
from ottla.node.local.local_nodes_driver import free_ports

FIRST_CONTROLLER = 101
CLUSTER_HEAP = "384m"
FORMATS_AT_ONCE = 2


def node_properties(
    role: str,
    node_id: int,
    port: int,
    *,
    directory: Path,
    voters: str,
    settings: Mapping[str, str],
) -> str:
    """Return the server.properties of one Kafka node of a cluster with the given voters."""
    name = "CONTROLLER" if role == "controller" else "PLAINTEXT"
    own = {
        **settings,
        "process.roles": role,
        "node.id": str(node_id),
        "listeners": f"{name}://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": voters,
        "log.dirs": str(directory / "data"),
    }
    return "".join(f"{key}={value}\n" for key, value in own.items())


@contextmanager
def open_kafka_cluster(
    jars: Path, settings: Mapping[str, str], *, controllers: int = 3, brokers: int = 3
) -> Iterator[RunningCluster]:
    """Format empty directories, start a cluster of Apache Kafka in them and yield it. The cluster
    stops at the end of the block.

    `ready_s` is the time in seconds from the start of the first process until a broker knows all
    brokers. Formatting is not included. Raises ConfigError if there is no Java or no Kafka, and
    RefusedError if Kafka does not start.
    """
    ports = free_ports(controllers + brokers, HOST)
    ids = [
        *(("controller", FIRST_CONTROLLER + at) for at in range(controllers)),
        *(("broker", 1 + at) for at in range(brokers)),
    ]
    nodes = dict(zip(ids, ports, strict=True))
    voters = ",".join(
        f"{one}@{HOST}:{port}" for (role, one), port in nodes.items() if role == "controller"
    )
    java = java_program(os.environ)
    base = [java, "-cp", f"{jars.resolve()}/*"]
    children: dict[str, subprocess.Popen[bytes]] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-kafka-") as name:
        configs: dict[str, Path] = {}
        for (role, one), port in nodes.items():
            directory = Path(name, f"{role}-{one}")
            directory.mkdir()
            configs[f"{role} {one}"] = config = directory / "server.properties"
            config.write_text(
                node_properties(
                    role, one, port, directory=directory, voters=voters, settings=settings
                )
            )
        with ThreadPoolExecutor(FORMATS_AT_ONCE) as pool:
            list(
                pool.map(
                    lambda config: format_directory(base, CLUSTER_ID, config), configs.values()
                )
            )
        started = time.perf_counter()
        try:
            for node, config in configs.items():
                children[node] = _start([*base, *server_jvm(CLUSTER_HEAP)], config)
            address = (HOST, nodes["broker", 1])
            _wait_for(brokers, address, children, configs)
            bootstrap = ",".join(
                f"{HOST}:{port}" for (role, _), port in nodes.items() if role == "broker"
            )
            pids = {node: child.pid for node, child in children.items()}
            yield RunningCluster(bootstrap, pids, time.perf_counter() - started)
        finally:
            for child in children.values():
                # SIGTERM would start a controlled shutdown, which would wait for the controllers.
                child.kill()
            for child in children.values():
                stop_server(child)


def _start(command: list[str], config: Path) -> subprocess.Popen[bytes]:
    with config.with_name("kafka.out").open("wb") as out:
        return subprocess.Popen(
            [*command, "kafka.Kafka", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_for(
    brokers: int,
    address: tuple[str, int],
    children: Mapping[str, subprocess.Popen[bytes]],
    configs: Mapping[str, Path],
) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        for node, child in children.items():
            if child.poll() is not None:
                reason = f"{node} ended with code {child.returncode} before it was ready"
                raise failure_of(reason, configs[node].with_name("kafka.out"))
        try:
            if known_brokers(address) == brokers:
                return
        except OSError:
            pass  # The broker does not listen or respond yet.
        time.sleep(LOOK_AGAIN_S)
    out = configs["broker 1"].with_name("kafka.out")
    raise failure_of(f"was not ready in {READY_TIMEOUT_S:g} s", out)
