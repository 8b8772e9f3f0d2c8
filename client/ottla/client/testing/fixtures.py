"""Pytest fixture that provides a test cluster. It requires pytest-trio.

To use it, add `pytest_plugins = ["ottla.client.testing"]` to `conftest.py`. This module imports the
modules of a cluster, so that the first test takes no longer than later tests.
"""

from collections.abc import AsyncIterator

import pytest

from ottla.client.testing import ClusterUnderTest, import_cluster, open_test_cluster

import_cluster()


@pytest.fixture
async def ottla_cluster() -> AsyncIterator[ClusterUnderTest]:
    """Start a cluster of one broker for a test, and stop it after the test."""
    async with open_test_cluster() as cluster:
        yield cluster
