"""pytest's door to the cluster for tests; needs pytest-trio.

`pytest_plugins = ["ottla.client.testing"]` in your `conftest.py`.  Loading it imports what
a cluster is made of, so that the first test waits no longer than the others.
"""

from collections.abc import AsyncIterator

import pytest

from ottla.client.testing import ClusterUnderTest, import_cluster, open_test_cluster

import_cluster()


@pytest.fixture
async def ottla_cluster() -> AsyncIterator[ClusterUnderTest]:
    """Give each test its own cluster of one broker."""
    async with open_test_cluster() as cluster:
        yield cluster
