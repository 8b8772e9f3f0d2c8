"""Fixed voters of a cluster at kraft.version 0, which become changeable by one command: Ottla's or
Kafka's."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
import trio

from ottla.bench.kafka.kafka_server import java_program
from ottla.client import open_admin
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.local.local_nodes_driver import free_ports
from tests.cluster.operations.server_nodes import Nodes
from tests.stock_files import server_settings

pytestmark = pytest.mark.cluster


def ottla(*words: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "ottla.cli", *words)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def start_fixed(nodes: Nodes) -> str:
    """Start a node of both roles whose voter is fixed; return its bootstrap address."""
    clients, controller = free_ports(2)
    settings = server_settings(nodes.directory / "data", clients, controller)
    del settings["controller.quorum.bootstrap.servers"]
    settings["controller.quorum.voters"] = f"1@localhost:{controller}"
    nodes.format("server", settings, "--feature", "kraft.version=0")
    nodes.start("server")
    return f"localhost:{clients}"


def removal(bootstrap: str) -> ErrorCode:
    """Ask to remove a voter that does not exist; return the code of the refusal."""

    async def body() -> ErrorCode:
        async with open_admin(bootstrap) as admin:
            with pytest.raises(RefusedError) as refused:
                await admin.remove_voter(1, UUID(int=1))
            return refused.value.code

    return trio.run(body)


def level_of(bootstrap: str) -> str:
    found = ottla("cluster", "features", "describe", "--bootstrap", bootstrap)
    (row,) = [line for line in found.stdout.splitlines() if line.startswith("kraft.version")]
    return row.split()[1]


def test_voters_may_change_after_one_command(nodes: Nodes) -> None:
    bootstrap = start_fixed(nodes)
    assert level_of(bootstrap) == "0"
    assert removal(bootstrap) is ErrorCode.UNSUPPORTED_VERSION
    words = ("cluster", "upgrade", "finalize", "--feature", "kraft.version=1", "--yes")
    done = ottla(*words, "--bootstrap", bootstrap)
    assert done.returncode == 0, done
    assert level_of(bootstrap) == "1"
    assert removal(bootstrap) is ErrorCode.VOTER_NOT_FOUND
    nodes.stop("server")
    nodes.start("server")
    assert removal(bootstrap) is ErrorCode.VOTER_NOT_FOUND


def test_kafkas_tool_raises_kraft_version(nodes: Nodes) -> None:
    jars = os.environ.get("OTTLA_KAFKA_JARS")
    if jars is None:
        pytest.skip("LOUD: OTTLA_KAFKA_JARS is not set; Kafka's own tool was NOT run here")
    bootstrap = start_fixed(nodes)
    assert removal(bootstrap) is ErrorCode.UNSUPPORTED_VERSION
    tool = [
        *(java_program(os.environ), "-cp", f"{Path(jars)}/*"),
        *("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", bootstrap),
    ]
    assert run(*tool, "upgrade", "--feature", "kraft.version=1").returncode == 0
    assert removal(bootstrap) is ErrorCode.VOTER_NOT_FOUND
    assert run(*tool, "downgrade", "--feature", "kraft.version=0").returncode == 1
    assert level_of(bootstrap) == "1"
