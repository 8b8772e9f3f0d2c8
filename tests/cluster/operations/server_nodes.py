"""Processes of `ottla server`, and a real client of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer

from ottla.node.local.local_nodes_driver import LocalNode, wait_until_ready
from tests.stock_files import write_settings
from tests.warm_parent import start_node

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
        path = self.write(name, settings)
        command = ["storage", "format", "-t", CLUSTER_ID, "-c", str(path), *options]
        subprocess.run([sys.executable, "-m", "ottla.cli", *command], check=True)

    def write(self, name: str, settings: Mapping[str, str]) -> Path:
        """Write the settings file of a node."""
        return write_settings(self._path(name), settings)

    def start(
        self,
        *names: str,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start nodes, and wait until all of them serve. `environment` adds to that of this
        process."""
        for name in names:
            with (self.directory / f"{name}.log").open("ab") as log:
                self.running[name] = start_node(
                    "server",
                    self._path(name),
                    options=options,
                    output=log,
                    environment={**os.environ, **(environment or {})},
                )
        wait_until_ready([self.running[name] for name in names], READY_S)

    def stop(self, name: str) -> None:
        """Stop a node by SIGTERM, and check that it was a controlled shutdown."""
        node = self.running.pop(name)
        node.send(signal.SIGTERM)
        assert node.process.wait(READY_S) == 0

    def log_of(self, name: str) -> str:
        """Return the output of a node."""
        return (self.directory / f"{name}.log").read_text()

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.properties"


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
