"""What holds for every test: speed is measured in `bench/` and asserted nowhere.

So hypothesis neither fails a test for a slow machine nor for data that took long to make, and what
only computes, or waits for a Spark that does, has more time until it counts as hung.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

COMPUTING = ("pipeline", "jepsen")
"""Folders of tests that run behind all others (`.ci/run`), on cores that are busy elsewhere."""
COMPUTING_TIMEOUT_S = 1_200

# Tests that start a JVM or a node fork beside gRPC's threads: the child must get to its exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that only compute more time than the default, unless they have their own."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if folder in COMPUTING and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(COMPUTING_TIMEOUT_S))
