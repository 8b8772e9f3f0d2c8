"""Apache Kafka started from a directory of jars: one node on loopback, which is broker and
controller."""

import os
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ottla.bench.requests import METADATA_VERSION, answer_to, frame_of
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.security.jaas import PLAIN_MODULE
from ottla.model.settings.security.sasl import PLAIN
from ottla.node.local.local_nodes_driver import free_ports
from ottla.wire import codec, headers
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse

HOST = "127.0.0.1"
SERVER_JARS = "kafka_2.13-*.jar"
CLUSTER_ID = urlsafe_b64encode(b"ottla-beside-one").decode().rstrip("=")
FORMAT_JVM = ("-Xmx256m",)
SERVER_HEAP = "1G"
FORMAT_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
LOOK_AGAIN_S = 0.1


class KafkaServer(NamedTuple):
    """A running server of Apache Kafka, which is broker and controller."""

    bootstrap: str
    pid: int
    version: str
    users_address: tuple[str, int] | None = None
    """Address of the server's listener that requires logins, or None if the server has no such
    listener."""
    listeners: Mapping[str, str] = MappingProxyType({})
    """Addresses of further listeners by name, as `host:port`."""
    ready_s: float = 0.0
    """Seconds from the start of the server until the server's metadata listed it as a broker."""


def server_jvm(heap: str = SERVER_HEAP) -> tuple[str, ...]:
    """Return the Java options of a Kafka server, as in Kafka's own scripts."""
    return (
        *(f"-Xmx{heap}", f"-Xms{heap}", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
        "-Djava.awt.headless=true",
    )


def java_program(environ: Mapping[str, str]) -> str:
    """Return the path of the Java program: in JAVA_HOME if it is set, or else the `java` on
    PATH."""
    home = environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def version_of(jars: Path) -> str:
    """Return Kafka's version, from the name of the server's jar. Raises ConfigError unless there is
    exactly one such jar."""
    found = sorted(jars.glob(SERVER_JARS))
    if len(found) != 1:
        raise ConfigError("--kafka", f"needs one {SERVER_JARS} in {jars}; there are {len(found)}")
    return found[0].stem.partition("-")[2]


def properties(
    directory: Path,
    port: int,
    controller_port: int,
    settings: Mapping[str, str],
    users: Mapping[str, str] | None = None,
    users_port: int = 0,
    listeners: Mapping[str, tuple[str, int]] = MappingProxyType({}),
) -> str:
    """Return the server.properties of a Kafka node that is broker and controller.

    `users` maps users to their passwords. They log in by SASL/PLAIN, on the port `users_port`.
    `listeners` maps the names of further listeners to their protocol and port.
    """
    own = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "log.dirs": str(directory / "data"),
    }
    if users:
        passwords = " ".join(f'user_{name}="{password}"' for name, password in users.items())
        own["listeners"] += f",USERS://{HOST}:{users_port}"
        own["advertised.listeners"] += f",USERS://{HOST}:{users_port}"
        own["listener.security.protocol.map"] += ",USERS:SASL_PLAINTEXT"
        own["sasl.enabled.mechanisms"] = PLAIN
        own["listener.name.users.plain.sasl.jaas.config"] = f"{PLAIN_MODULE} required {passwords};"
    for name, (protocol, at) in listeners.items():
        own["listeners"] += f",{name}://{HOST}:{at}"
        own["advertised.listeners"] += f",{name}://{HOST}:{at}"
        own["listener.security.protocol.map"] += f",{name}:{protocol}"
    if users or listeners:
        own["inter.broker.listener.name"] = "PLAINTEXT"
    return "".join(f"{key}={value}\n" for key, value in {**settings, **own}.items())


@contextmanager
def open_kafka(
    jars: Path,
    directory: Path,
    settings: Mapping[str, str],
    *,
    java: str | None = None,
    users: Mapping[str, str] | None = None,
    listeners: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[KafkaServer]:
    """Format an empty directory, start Kafka in it and yield the server. The server stops at the
    end of the block.

    `users` maps the users who may log in by SASL/PLAIN to their passwords. `listeners` maps the
    names of further listeners to their protocols. Raises ConfigError if there is no Java or no
    Kafka, and RefusedError if Kafka does not start.
    """
    version = version_of(jars)
    port, controller_port, users_port, *others = free_ports(3 + len(listeners), HOST)
    opened = {name: (listeners[name], at) for name, at in zip(listeners, others, strict=True)}
    config = directory / "server.properties"
    config.write_text(
        properties(directory, port, controller_port, settings, users, users_port, opened)
    )
    java = java or java_program(os.environ)
    base = [java, "-cp", f"{jars.resolve()}/*"]
    log = directory / "kafka.out"
    format_directory(base, CLUSTER_ID, config)
    started = time.perf_counter()
    with log.open("ab") as out:
        # The server gets a session of its own, so that Ctrl-C reaches only this process, which then
        # stops the server below.
        child = subprocess.Popen(
            [*base, *server_jvm(), "kafka.Kafka", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_ready(child, (HOST, port), log)
        ready_s = time.perf_counter() - started
        users_address = (HOST, users_port) if users else None
        addresses = {name: f"{HOST}:{at}" for name, (_, at) in opened.items()}
        yield KafkaServer(f"{HOST}:{port}", child.pid, version, users_address, addresses, ready_s)
    finally:
        stop_server(child)


def format_directory(java: list[str], cluster_id: str, config: Path) -> None:
    """Format the directories that a Kafka server.properties file names. The output of the command
    is stored beside that file.

    Raises ConfigError if there is no Java, and RefusedError if Kafka refuses.
    """
    log = config.with_name("kafka.out")
    command = [*java, *FORMAT_JVM, "kafka.tools.StorageTool", "format"]
    try:
        with log.open("wb") as out:
            ended = subprocess.run(
                [*command, "--cluster-id", cluster_id, "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=FORMAT_TIMEOUT_S,
                check=False,
            )
    except FileNotFoundError:
        raise ConfigError("JAVA_HOME", f"leads to no Java: {java[0]} is missing") from None
    except subprocess.TimeoutExpired:
        raise failure_of(f"did not format its directory in {FORMAT_TIMEOUT_S:g} s", log) from None
    if ended.returncode:
        raise failure_of("did not format its directory", log)


def _wait_until_ready(child: subprocess.Popen[bytes], address: tuple[str, int], log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise failure_of(f"ended with code {child.returncode} before it was ready", log)
        try:
            if known_brokers(address):
                return
        except OSError:
            pass  # The server does not listen or respond yet.
        time.sleep(LOOK_AGAIN_S)
    raise failure_of(f"was not ready in {READY_TIMEOUT_S:g} s", log)


def known_brokers(address: tuple[str, int]) -> int:
    """Return the number of brokers in the metadata of the broker at `address`. Raises OSError if
    the broker is unreachable."""
    answer = answer_to(address, frame_of(MetadataRequest(topics=[]), METADATA_VERSION))
    if not answer:
        return 0
    _, at = headers.decode_response_header(MetadataRequest.API_KEY, METADATA_VERSION, answer)
    found = codec.decode(MetadataResponse, METADATA_VERSION, memoryview(answer)[at:])
    return len(found.brokers)


def stop_server(child: subprocess.Popen[bytes]) -> None:
    """Stop a Kafka server, and kill it if it does not end in time."""
    child.terminate()
    try:
        child.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def failure_of(what: str, log: Path) -> RefusedError:
    """Return the error for a Kafka process that failed, with the last line of its log."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return RefusedError(
        ErrorCode.INVALID_REQUEST, f"Kafka {what}: {lines[-1] if lines else 'it printed nothing'}"
    )
