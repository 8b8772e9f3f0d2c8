"""Three controllers and three brokers from Kafka's files with the lines of docs/deploy.md, and the
questions that an operator asks them."""

import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import run
from ottla.model.version import VERSION
from ottla.node.local.local_nodes_driver import free_ports
from ottla.node.properties import parse_properties
from tests.cluster.operations.server_nodes import Nodes, received, send
from tests.stock_files import broker_settings, controller_settings

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[3] / "docs" / "deploy.md"
MACHINES = ("one", "two", "three")
IDS = ("LgU8y1xiQCGivTtmzu3cCw", "AiWIXYG3R1aaK78FtukWQQ", "umC3TV_LRoCBnHHlVE-jIQ")
RECORDS = [b"%d" % number for number in range(500)]


def appended(role: str, number: int, ports: Mapping[str, int], directory: Path) -> dict[str, str]:
    """Return the lines that the page appends to Kafka's file of a role, with the ports and the
    directories of this test."""
    section = PAGE.read_text().partition("\n## Files of Kafka\n")[2].partition("\n## ")[0]
    (block,) = [
        one
        for one in re.findall(r"```properties\n(.*?)```", section, re.DOTALL)
        if f"/{role}-" in one
    ]
    name = MACHINES[number - 1]
    block = block.replace("CONTROLLER://one.example", f"CONTROLLER://{name}.example")
    block = block.replace("PLAINTEXT://one.example", f"PLAINTEXT://{name}.example")
    block = re.sub(r"((?:node\.id=|broker-|controller-)(?:10)?)1\b", rf"\g<1>{number}", block)
    block = block.replace("PLAINTEXT://:9092", f"PLAINTEXT://:{ports[f'{name}.example:9092']}")
    for address, port in ports.items():
        block = block.replace(address, f"localhost:{port}")
    return parse_properties(block.replace("/var/lib/ottla", str(directory)))


def start_three_machines(nodes: Nodes) -> str:
    """Format and start the cluster of the page; return the address of its first broker."""
    addresses = [f"{name}.example:{port}" for name in MACHINES for port in (9092, 9093)]
    ports = dict(zip(addresses, free_ports(len(addresses)), strict=True))
    voters = ",".join(
        f"10{number}@localhost:{ports[f'{name}.example:9093']}:{id_}"
        for number, (name, id_) in enumerate(zip(MACHINES, IDS, strict=True), 1)
    )
    for number, name in enumerate(MACHINES, 1):
        unused = nodes.directory / "unused"
        listeners = {"listeners": f"CONTROLLER://:{ports[f'{name}.example:9093']}"}
        settings = controller_settings(unused) | listeners
        settings |= appended("controller", number, ports, nodes.directory)
        nodes.format(f"controller-10{number}", settings, "--initial-controllers", voters)
        settings = broker_settings(unused) | appended("broker", number, ports, nodes.directory)
        nodes.format(f"broker-{number}", settings, "--no-initial-controllers")
    nodes.start(*(f"controller-10{number}" for number in (1, 2, 3)))
    nodes.start(*(f"broker-{number}" for number in (1, 2, 3)))
    return f"localhost:{ports['one.example:9092']}"


def test_an_operators_questions_are_answered(
    nodes: Nodes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bootstrap = start_three_machines(nodes)

    def asked(*words: str) -> Any:
        """Return the answer of a command in JSON."""
        assert run([*words, "--bootstrap", bootstrap, "--format", "json"]) == 0, words
        return json.loads(capsys.readouterr().out)

    def done(*words: str) -> str:
        assert run([*words, "--bootstrap", bootstrap]) == 0, words
        return capsys.readouterr().out

    done("topic", "create", "records", "--partitions", "3")
    replicas = [row["replicas"] for row in asked("topic", "describe", "records")[0]["partitions"]]
    assert [sorted(row) for row in replicas] == [[1, 2, 3]] * 3, "the files give three replicas"

    send(bootstrap, RECORDS)
    assert len(received(bootstrap, 100)) >= 100
    send(bootstrap, RECORDS)
    (lag,) = asked("group", "lag")
    assert lag["group"] == "g"

    status = asked("status")
    assert {one["version"] for one in (*status["brokers"], *status["quorum"]["voters"])} == {
        VERSION
    }
    upgrade = asked("cluster", "upgrade", "status")
    assert [one["version"] for one in upgrade["controllers"]] == [VERSION] * 3
    assert upgrade["next"] == {}

    done("broker", "drain", "2", "--yes")
    done("broker", "drain", "2", "--undo")
    done("backup", "create", str(tmp_path / "backup"), "--topic", "records")
    assert run(["backup", "verify", str(tmp_path / "backup")]) == 0
    archive = tmp_path / "state.tar.gz"
    done("bundle", "--output", str(archive))
    with tarfile.open(archive) as found:
        assert len(found.getnames()) > 5
