"""A node does not start in a cluster whose level only a newer release supports: one sentence."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.cluster.cluster_file import properties_of
from ottla.node.local.local_nodes_driver import NODE_MODULE
from tests.cluster.conftest import Processes

pytestmark = pytest.mark.cluster
NEWER = "tests.cluster.upgrades.newer_release"
ROOT = Path(__file__).parents[3]
"""Directory of the package `tests`, which nodes do not import from the current directory."""
TIMEOUT_S = 60


def started(cluster: Processes, name: str) -> subprocess.CompletedProcess[str]:
    """Run a node of this release until it ends."""
    role = name.split()[0]
    return subprocess.run(
        [sys.executable, "-m", NODE_MODULE, role, str(properties_of(role, cluster.node(name)))],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_a_node_names_the_level_of_a_newer_release_and_changes_nothing(
    plan_cluster: Callable[..., Processes],
) -> None:
    cluster = plan_cluster()
    cluster.module = NEWER
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    cluster.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    cluster.start()
    cluster.wait_healthy()
    cluster.end("broker")

    broker = started(cluster, "broker")
    cluster.end("controller")
    controller = started(cluster, "controller")

    for node, role in ((broker, "broker"), (controller, "controller")):
        assert node.returncode == 1, node
        last = node.stderr.splitlines()[-1]
        assert last.startswith(f"ottla {role}: the cluster has level 2 of ottla.version, and Ottla")
        assert last.endswith("start this node with the newer release")
        # gRPC may log a traceback of its own if a server is stopped just when it has started.
        assert "/ottla/" not in node.stderr
    cluster.start()
    cluster.wait_healthy()


def test_a_directory_of_a_newer_format_is_refused(plan_cluster: Callable[..., Processes]) -> None:
    cluster = plan_cluster()
    file = Path(cluster.node("controller").dir) / "meta.properties"
    file.write_text(file.read_text().replace("ottla.format=1", "ottla.format=7"))

    controller = started(cluster, "controller")

    assert controller.returncode == 1
    assert "meta.properties has ottla.format=7" in controller.stderr.splitlines()[-1]
