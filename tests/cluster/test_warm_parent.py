"""Nodes of the warm parent: output, environment and exit codes are those of a new process."""

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.cluster.cluster_file import properties_of
from ottla.cli.cluster.node_process import WARNED_VARIABLE
from ottla.node.local.local_nodes_driver import LocalNode
from tests.cluster.conftest import make_processes
from tests.warm_parent import IS_WARM, UNKNOWN_CODE, WarmParent, may_fork_node

pytestmark = pytest.mark.skipif(not IS_WARM, reason="nodes import their own modules")

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def parent() -> Iterator[WarmParent]:
    made = WarmParent()
    yield made
    made.end()


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    """Return the settings file of a formatted controller."""
    processes = make_processes(tmp_path / "cluster")
    return properties_of("controller", processes.plan.controllers[0])


def start(parent: WarmParent, properties: Path, log: Path, *options: str) -> LocalNode:
    with log.open("ab") as output:
        return parent.fork_node("controller", properties, options=options, output=output)


def test_a_node_that_refuses_its_file_has_its_output_and_exit_code(
    parent: WarmParent, tmp_path: Path
) -> None:
    node = start(parent, tmp_path / "missing.properties", tmp_path / "log")
    assert not node.read_readiness()
    assert node.process.wait(TIMEOUT_S) == node.process.poll() == 1
    assert "missing.properties is not there" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("is_warned", [False, True])
def test_a_node_has_the_present_environment_of_the_session(
    parent: WarmParent,
    properties: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_warned: bool,
) -> None:
    start(parent, tmp_path / "missing.properties", tmp_path / "other").read_readiness()
    if is_warned:
        monkeypatch.setenv(WARNED_VARIABLE, "1")
    node = start(parent, properties, tmp_path / "log", "--set=of.an.application=1")
    assert node.read_readiness()
    assert ("of.an.application" in (tmp_path / "log").read_text()) is not is_warned


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_a_node_ends_by_a_signal(
    parent: WarmParent, properties: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    node = start(parent, properties, tmp_path / "log")
    assert node.read_readiness()
    with pytest.raises(subprocess.TimeoutExpired):
        node.process.wait(0.01)
    assert node.process.poll() is None
    node.send(number)
    assert node.process.wait(TIMEOUT_S) == code
    node.kill()  # does nothing


@pytest.mark.parametrize(
    ("name", "is_free"), [("OTTLA_PLACE", True), ("PYTHONPATH", False), ("LD_PRELOAD", False)]
)
def test_a_node_whose_start_depends_on_its_environment_is_not_forked(
    name: str, is_free: bool
) -> None:
    assert may_fork_node()
    assert may_fork_node({**os.environ, name: "there"}) is is_free


def test_a_library_of_the_session_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    assert not may_fork_node()


def test_nodes_end_with_their_parent(properties: Path, tmp_path: Path) -> None:
    parent = WarmParent()
    node = start(parent, properties, tmp_path / "log")
    assert node.read_readiness()
    waited = os.pidfd_open(node.pid)
    parent.end()
    waiting = select.poll()
    waiting.register(waited, select.POLLIN)
    assert waiting.poll(TIMEOUT_S * 1_000)
    os.close(waited)
    assert node.process.wait(TIMEOUT_S) == UNKNOWN_CODE
