"""Settings with the keys and values of the files that Kafka 4.4 ships: server.properties for both
roles, broker.properties and controller.properties for one each."""

from collections.abc import Mapping
from pathlib import Path

_OF_EVERY_FILE = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}

_CLIENTS, _CONTROLLER = 9092, 9093
"""Ports in Kafka's files."""


def server_settings(
    directory: Path, clients: int = _CLIENTS, controller: int = _CONTROLLER
) -> dict[str, str]:
    """Return the settings of a node with both roles. The arguments replace Kafka's directory and
    ports."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"localhost:{controller}",
        "listeners": f"PLAINTEXT://:{clients},CONTROLLER://:{controller}",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": f"PLAINTEXT://localhost:{clients},"
        f"CONTROLLER://localhost:{controller}",
        "log.dirs": str(directory),
        **_OF_EVERY_FILE,
    }


def controller_settings(directory: Path, controller: int = _CONTROLLER) -> dict[str, str]:
    """Return the settings of a controller."""
    return {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"localhost:{controller}",
        "listeners": f"CONTROLLER://:{controller}",
        "advertised.listeners": f"CONTROLLER://localhost:{controller}",
        "log.dirs": str(directory),
        **_OF_EVERY_FILE,
    }


def broker_settings(
    directory: Path, clients: int = _CLIENTS, controller: int = _CONTROLLER
) -> dict[str, str]:
    """Return the settings of a broker."""
    return {
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.bootstrap.servers": f"localhost:{controller}",
        "listeners": f"PLAINTEXT://localhost:{clients}",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": f"PLAINTEXT://localhost:{clients}",
        "log.dirs": str(directory),
        **_OF_EVERY_FILE,
    }


def write_settings(path: Path, settings: Mapping[str, str]) -> Path:
    """Write a .properties file, and return its path."""
    path.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
    return path
