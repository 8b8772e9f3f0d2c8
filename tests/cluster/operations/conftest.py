"""Nodes of the tests in this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.node.local.local_nodes_driver import end_nodes
from tests.cluster.operations.server_nodes import READY_S, Nodes


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Return starts of nodes whose processes end with the test."""
    found = Nodes(tmp_path)
    yield found
    end_nodes([node.process for node in found.running.values()], READY_S)
