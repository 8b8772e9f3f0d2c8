"""The pytest fixture of a test cluster. It requires pytest-trio.

Add `pytest_plugins = ["ottla.client.testing"]` to your `conftest.py`. This module imports the
modules of a cluster beforehand, so that the first test takes no longer than later tests.
"""

from collections.abc import AsyncIterator

import pytest

from ottla.client.testing import ClusterUnderTest, import_cluster, open_test_cluster

import_cluster()


@pytest.fixture
async def ottla_cluster() -> AsyncIterator[ClusterUnderTest]:
    """Fixture that starts a cluster of one broker for each test."""
    async with open_test_cluster() as cluster:
        yield cluster
