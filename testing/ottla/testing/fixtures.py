"""Pytest fixtures that provide running clusters. A `conftest.py` with `pytest_plugins =
["ottla.testing"]` loads them.

No pytest plugin for asyncio is needed: the fixtures are synchronous, and tests await the methods of
`AsyncCluster` in their own event loop.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ottla.client.testing import import_cluster
from ottla.testing.async_cluster import AsyncCluster
from ottla.testing.sync_cluster import SyncCluster, cluster

# The import happens here, so that the first test does not take longer than the others.
import_cluster()


@pytest.fixture(scope="session")
def ottla_options() -> Mapping[str, Any]:
    """Return the arguments that the fixtures pass to `ottla.testing.cluster`. Projects override
    this fixture in their `conftest.py`."""
    return {}


@pytest.fixture(scope="session")
def ottla_session_cluster(ottla_options: Mapping[str, Any]) -> Iterator[SyncCluster]:
    """Provide one cluster for the whole test run. It is never reset, so tests that use it directly
    see each other's topics."""
    with cluster(**ottla_options) as running:
        yield running


@pytest.fixture
def ottla_cluster(ottla_session_cluster: SyncCluster) -> Iterator[SyncCluster]:
    """Provide the cluster that all tests of the run share. The fixture resets it after each
    test."""
    yield ottla_session_cluster
    ottla_session_cluster.reset()


@pytest.fixture
def ottla_async_cluster(ottla_cluster: SyncCluster) -> AsyncCluster:
    """Provide the cluster that all tests of the run share, with coroutines for asyncio. The fixture
    resets the cluster after each test."""
    return AsyncCluster(ottla_cluster)


@pytest.fixture
def ottla_own_cluster(ottla_options: Mapping[str, Any]) -> Iterator[SyncCluster]:
    """Provide a new cluster that only this test uses."""
    with cluster(**ottla_options) as running:
        yield running
