"""Kafka's own tools with --bootstrap-controller, at Ottla and at Kafka: the same codes and outputs.

Both run one process with both roles, from the same settings. Each invocation of a tool is compared:
its exit code, and its output without addresses, offsets, times and traces. Where they differ, the
row has the reason, and docs/reference/compatibility.md names it for users.

Runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release, some 90 s.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.bench.kafka.kafka_server import CLUSTER_ID, HOST, java_program, open_kafka, properties
from ottla.node.local.local_nodes_driver import (
    NODE_MODULE,
    end_nodes,
    free_ports,
    start_node,
    wait_until_ready,
)

pytestmark = pytest.mark.cluster

JARS = "OTTLA_KAFKA_JARS"
TOOL_TIMEOUT_S = 120.0
READY_S, END_S = 60.0, 30.0
NODE = "1"
UNKNOWN_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAQ"
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "early.start.listeners": "CONTROLLER",
}
SIMPLIFIED = (
    (re.compile(rf"{re.escape(HOST)}:?\s*\d+"), "ADDRESS"),
    (re.compile(r"[A-Za-z0-9_-]{22}"), "DIRECTORY"),
    (re.compile(r"(?<=Epoch: )\d+|(?<=HighWatermark: )\s*\d+|(?<=LagTimeMs: )\s*\d+"), "NUMBER"),
    (re.compile(r"\b\d{13}\b"), "TIME"),
    (re.compile(r"\s+"), " "),
)
NO_CONTENT = ("SLF4J", "\tat ", "Caused by:")


class Invocation(NamedTuple):
    """One invocation of a tool."""

    tool: str
    words: str
    differs: str = ""
    """The reason why the output differs; empty if it is the same."""
    codes_differ: bool = False


OTHER_TEXT = "the sentence is Ottla's own"
OTHER_SETTINGS = "the settings and loggers are Ottla's own"
CONFIGS = "ConfigCommand"
INVOCATIONS = (
    Invocation("ClusterTool", "cluster-id"),
    Invocation("ClusterTool", "list-endpoints"),
    Invocation("ClusterTool", "api-versions", "nodes use gRPC"),
    Invocation("ClusterTool", "unregister --id 55"),
    Invocation("ClusterTool", "unregister-controller --id 55", OTHER_TEXT),
    Invocation("MetadataQuorumCommand", "describe --status", "static voters have directories"),
    Invocation("MetadataQuorumCommand", "describe --replication", "offsets are not the same"),
    Invocation(
        "MetadataQuorumCommand",
        f"remove-controller --controller-id 9 --controller-directory-id {UNKNOWN_DIRECTORY}",
        OTHER_TEXT,
    ),
    Invocation("FeatureCommand", "describe", "the features of this release"),
    Invocation("FeatureCommand", "upgrade --feature transaction.version=1"),
    Invocation("FeatureCommand", "downgrade --feature transaction.version=1"),
    Invocation("FeatureCommand", "upgrade --feature transaction.version=2 --dry-run"),
    Invocation("FeatureCommand", "upgrade --feature transaction.version=2"),
    Invocation("FeatureCommand", "upgrade --feature transaction.version=9"),
    Invocation("FeatureCommand", "upgrade --feature no.version=1"),
    Invocation(CONFIGS, "--alter --entity-type brokers --entity-default --add-config"
               " log.retention.ms=100000"),
    Invocation(CONFIGS, "--describe --entity-type brokers --entity-default"),
    Invocation(CONFIGS, "--alter --entity-type brokers --entity-default --delete-config"
               " log.retention.ms"),
    Invocation(CONFIGS, "--alter --entity-type brokers --entity-default --add-config"
               " log.retention.ms=many",
        "Kafka stores values that no broker can use", codes_differ=True),
    Invocation(CONFIGS, "--alter --entity-type brokers --entity-name 77 --add-config"
               " log.cleaner.threads=2", "brokers answer INVALID_REQUEST, too"),
    Invocation(CONFIGS, f"--describe --all --entity-type brokers --entity-name {NODE}",
               OTHER_SETTINGS),
    Invocation(CONFIGS, f"--describe --entity-type broker-loggers --entity-name {NODE}",
               OTHER_SETTINGS),
    Invocation(CONFIGS, "--describe --entity-type topics --entity-name orders"),
    Invocation("AclCommand", "--list"),
    Invocation("AclCommand", "--add --allow-principal User:alice --operation Read --topic orders"),
    Invocation("AclCommand", "--list --topic orders"),
    Invocation("AclCommand", "--remove --force --allow-principal User:alice --operation Read"
               " --topic orders"),
    Invocation("AclCommand", "--list --topic orders"),
    Invocation("reassign.ReassignPartitionsCommand", "--list"),
)  # fmt: skip


class Outcome(NamedTuple):
    """Exit code and simplified output of an invocation."""

    code: int
    lines: list[str]


@pytest.fixture(scope="module")
def jars() -> Path:
    found = os.environ.get(JARS)
    if not found:
        pytest.skip(f"LOUD: {JARS} is not set; Kafka's tools were NOT run here")
    return Path(found)


def run(jars: Path, invocation: Invocation, controller: str) -> Outcome:
    """Run a tool against one controller, and return its exit code and output."""
    command = [
        *(java_program(os.environ), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"),
        f"org.apache.kafka.tools.{invocation.tool}",
    ]
    words = ["--bootstrap-controller", controller]
    # Subcommands have options of their own, except in the tool of the cluster.
    own = invocation.words.split()
    words = [*own, *words] if invocation.tool == "ClusterTool" else [*words, *own]
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    text = done.stdout + done.stderr
    return Outcome(done.returncode, [simplified(one) for one in text.splitlines() if is_said(one)])


def is_said(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(NO_CONTENT)


def simplified(line: str) -> str:
    for pattern, name in SIMPLIFIED:
        line = pattern.sub(name, line)
    return line.strip()


@contextmanager
def ottla_controller(directory: Path) -> Iterator[str]:
    """Run Ottla with the file that Kafka has; yield the address of its controller."""
    port, controller_port = free_ports(2, HOST)
    config = directory / "server.properties"
    config.write_text(properties(directory, port, controller_port, SETTINGS))
    command = [sys.executable, "-m", NODE_MODULE, "storage", "format"]
    subprocess.run([*command, "-t", CLUSTER_ID, "-c", str(config)], check=True)
    with (directory / "ottla.out").open("wb") as out:
        node = start_node("server", config, output=out)
    try:
        wait_until_ready([node], READY_S)
        yield f"{HOST}:{controller_port}"
    finally:
        end_nodes([node.process], END_S)


@contextmanager
def kafka_controller(jars: Path, directory: Path) -> Iterator[str]:
    """Run Kafka; yield the address of its controller."""
    with open_kafka(jars, directory, SETTINGS):
        listeners = (directory / "server.properties").read_text()
        found = re.search(rf"CONTROLLER://({re.escape(HOST)}:\d+)", listeners)
        assert found is not None
        yield found[1]


def test_tools_have_the_same_codes_and_outputs(
    jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ours, theirs = (tmp_path_factory.mktemp(name) for name in ("ottla", "kafka"))
    with ottla_controller(ours) as address:
        of_ottla = [run(jars, one, address) for one in INVOCATIONS]
    with kafka_controller(jars, theirs) as address:
        of_kafka = [run(jars, one, address) for one in INVOCATIONS]
    differences = []
    for invocation, own, other in zip(INVOCATIONS, of_ottla, of_kafka, strict=True):
        are_as_expected = (own.code != other.code) == invocation.codes_differ
        if not are_as_expected or (own.lines != other.lines) != bool(invocation.differs):
            differences.append(f"{invocation}: {own} and {other}")
    assert differences == [], "\n".join(differences)


def test_a_controller_refuses_settings_of_its_own(
    jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Kafka stores them: num.partitions=4 of node 1 is accepted, and has no effect.
    change = f"--alter --entity-type brokers --entity-name {NODE} --add-config num.partitions=4"
    with ottla_controller(tmp_path_factory.mktemp("ottla")) as address:
        refused = run(jars, Invocation(CONFIGS, change), address)
    assert refused.code == 1
    assert any("has no dynamic settings of its own" in line for line in refused.lines), refused
