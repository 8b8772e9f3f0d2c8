"""Changes that operators must not make, typed as commands at a real cluster: Kafka's code in one
sentence, exit code 1, and no new record in the metadata."""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.cli.cluster.cluster_file import properties_of
from ottla.cli.cluster.voters.voter_requests import add
from ottla.client import open_admin
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.local.local_nodes_driver import free_port, start_node, wait_until_ready
from tests.cluster.conftest import Processes, make_processes
from tests.cluster.operations.server_nodes import Nodes

pytestmark = pytest.mark.cluster

READY_S = 60.0
PENDING = "Request timed out waiting for the leader to handle a previous voter change."
OF_RECORDS = "it might delete metadata information"


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Processes, Processes]]:
    """A cluster of a controller and two brokers, and the controller of another cluster."""
    first, other = (
        make_processes(tmp_path_factory.mktemp(name), brokers=brokers, is_secure=False)
        for name, brokers in (("first", 2), ("other", 1))
    )
    try:
        first.start()
        other.start("controller")
        first.ottla("topic", "create", "t", "--partitions", "1", "--replication-factor", "1")
        first.ottla("topic", "reassign", "t", "--brokers", "1", "--yes", "--watch")
        yield first, other
    finally:
        first.stop_all()
        other.stop_all()


def changes(cluster: Processes) -> list[dict[str, Any]]:
    """Return all changes in the metadata log."""
    printed = cluster.ottla("quorum", "log", "--format", "json").stdout
    return [json.loads(line) for line in printed.splitlines()]


def refusal(cluster: Processes, *words: str) -> str:
    """Run a command that must be refused with one line, and check that it changes no metadata."""
    before = changes(cluster)
    done = cluster.ottla(*words, "--yes", code=1)
    (line,) = done.stderr.splitlines()
    assert changes(cluster) == before
    return line


def voter_of(cluster: Processes, number: int) -> str:
    """Return the voter ID@HOST:PORT:DIRECTORY of a cluster's only controller, under another id."""
    node = cluster.node("controller")
    return f"{number}@{node.address}:{directory_of(Path(node.dir))}"


def directory_of(directory: Path) -> str:
    lines = (directory / "meta.properties").read_text().splitlines()
    (id_,) = [line.partition("=")[2] for line in lines if line.startswith("directory.id=")]
    return id_


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("broker remove 9", "BROKER_ID_NOT_REGISTERED: there is no broker 9 in this cluster"),
        ("broker drain 9", "BROKER_ID_NOT_REGISTERED: there is no broker 9 in this cluster"),
        ("broker unregister 9", "BROKER_ID_NOT_REGISTERED: there is no broker 9 in this cluster"),
        ("topic reassign t --brokers 1,9", "INVALID_REPLICA_ASSIGNMENT: --brokers names 9, not"),
        ("topic reassign --evacuate 9", "BROKER_ID_NOT_REGISTERED: there is no broker 9"),
        ("quorum remove 101", "VOTER_NOT_FOUND: controller 101 is the last voter"),
        ("quorum remove 109", "VOTER_NOT_FOUND: controller 109 is no voter"),
        ("quorum unregister 109", "CONTROLLER_ID_NOT_REGISTERED: Controller ID 109 is not"),
        ("quorum unregister 101", "INVALID_REQUEST: controller 101 is a voter"),
        ("cluster features downgrade metadata.version=30", OF_RECORDS),
        ("cluster features downgrade ottla.version=0", OF_RECORDS),
        (
            "cluster features downgrade metadata.version=30 --unsafe",
            "Unsafe metadata downgrade is not supported in this version.",
        ),
        ("cluster features downgrade kraft.version=0", "Can't downgrade the version of this"),
        ("cluster features upgrade metadata.version=34", "only supports versions 30-33"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    clusters: tuple[Processes, Processes], command: str, sentence: str
) -> None:
    line = refusal(clusters[0], *command.split())
    assert sentence in line
    assert ("features" in command) == ("INVALID_UPDATE_VERSION" in line)


def test_a_voter_of_another_cluster_is_refused(clusters: tuple[Processes, Processes]) -> None:
    first, other = clusters
    line = refusal(first, "quorum", "add", voter_of(other, 102))
    assert "INCONSISTENT_CLUSTER_ID" in line
    assert f"belongs to cluster {other.plan.cluster_id}" in line
    assert "DUPLICATE_VOTER" in refusal(first, "quorum", "add", voter_of(other, 101))


def test_a_replica_is_not_moved_to_a_broker_that_another_operator_removes(
    clusters: tuple[Processes, Processes],
) -> None:
    first, _ = clusters
    done = first.ottla("broker", "remove", "2", "--yes", "--stop-timeout=0", code=None)
    assert "holds no replica" in done.stderr
    line = refusal(first, "topic", "reassign", "t", "--brokers", "2")
    assert "INVALID_REPLICA_ASSIGNMENT" in line
    assert "broker 2, but all its log directories are cordoned" in line
    first.ottla("broker", "cordon", "2", "--undo")


def test_the_second_of_two_changes_of_the_voters_is_refused(
    clusters: tuple[Processes, Processes], tmp_path: Path
) -> None:
    """The first change waits for its voter, which is stopped; that ends it without effect, too."""
    first, _ = clusters
    nodes = Nodes(tmp_path)
    port = free_port()
    text = properties_of("controller", first.node("controller")).read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    address = first.node("controller").address
    settings |= {
        "node.id": "102",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.quorum.voters": f"101@{address},102@127.0.0.1:{port}",
        "metadata.log.dir": str(tmp_path / "metadata"),
    }
    file = nodes.write("joining", settings)
    options = ["-t", first.plan.cluster_id, "-c", str(file), "--no-initial-controllers"]
    ottla = [sys.executable, "-m", "ottla.cli"]
    subprocess.run([*ottla, "storage", "format", *options], check=True)
    with (tmp_path / "joining.log").open("wb") as log:
        node = start_node("server", file, output=log)
    try:
        wait_until_ready([node], READY_S)
        voter = f"102@127.0.0.1:{port}:{directory_of(tmp_path / 'metadata')}"
        first.wait_for(
            lambda: "102" in first.ottla("quorum", "replicas").stdout or None, "an observer"
        )
        node.send(signal.SIGSTOP)
        before = changes(first)
        refused = trio.run(asked_twice, first.bootstrap, voter)
        assert [one.code for one in refused] == [ErrorCode.REQUEST_TIMED_OUT] * 2
        pending, silent = sorted(map(str, refused), key=lambda text: PENDING not in text)
        assert PENDING in pending
        assert "does not answer" in silent
        assert changes(first) == before
    finally:
        node.process.kill()
        node.process.wait()


async def asked_twice(bootstrap: str, voter: str) -> list[RefusedError]:
    """Run `ottla quorum add` of two operators at the same time; return their refusals."""
    refused = []

    async def ask() -> None:
        arguments = argparse.Namespace(controller=voter, yes=True, timeout=0.0, format="json")
        async with open_admin(bootstrap) as admin:
            with pytest.raises(RefusedError) as refusal:
                await add(admin, arguments)
        refused.append(refusal.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
    return refused


def test_a_directory_that_a_newer_release_formatted_is_left_alone(
    clusters: tuple[Processes, Processes],
) -> None:
    _, other = clusters
    other.end("controller")
    directory = Path(other.node("controller").dir)
    file = directory / "meta.properties"
    file.write_text(file.read_text().replace("ottla.format=1", "ottla.format=7"))
    before = {one: one.read_bytes() for one in directory.rglob("*") if one.is_file()}
    command = [sys.executable, "-m", "ottla.cli", "server"]
    done = subprocess.run(
        [*command, str(properties_of("controller", other.node("controller")))],
        capture_output=True,
        text=True,
        timeout=READY_S,
        check=False,
    )
    assert done.returncode == 1
    assert "meta.properties has ottla.format=7" in done.stderr.splitlines()[-1]
    after = {one: one.read_bytes() for one in directory.rglob("*") if one.is_file()}
    assert {one: text for one, text in after.items() if one.name != ".lock"} == {
        one: text for one, text in before.items() if one.name != ".lock"
    }
