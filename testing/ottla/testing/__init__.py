"""Real Kafka-compatible clusters inside a test process, for synchronous and asyncio tests.

`with ottla.testing.cluster() as cluster:` starts a controller and brokers on free ports, in a
thread. Any Kafka client can connect to `cluster.bootstrap`. `async with
ottla.testing.async_cluster()` does the same for asyncio. For pytest, `pytest_plugins =
["ottla.testing"]` loads the fixtures `ottla_cluster`, `ottla_async_cluster`, `ottla_own_cluster`
and `ottla_session_cluster`. Tests that use trio use `ottla.client.testing` instead, which runs the
cluster in the test's own loop.

sync_cluster.py       the cluster of synchronous tests
async_cluster.py      the cluster of asyncio tests
fixtures.py           pytest fixtures
cluster_thread.py     the thread that runs a cluster
in_process.py         a controller and brokers in the running trio loop
in_process_faults.py  fault injection for the brokers' socket servers
cluster_reset.py      deletes the resources that tests have added to a cluster
leftovers.py          finds the resources that tests have added
loop_time.py          virtual time of a trio loop
world_options.py      pytest options of `ottla.testing.world`
world/                property tests in a simulated cluster
"""

from ottla.client.testing import LostAnswers
from ottla.testing.async_cluster import AsyncCluster, async_cluster
from ottla.testing.sync_cluster import SyncCluster, cluster

pytest_plugins = ["ottla.testing.fixtures", "ottla.testing.world_options"]
"""Names of the modules that pytest imports as plugins when it loads `ottla.testing`. Because only
pytest imports them, this package works without pytest."""

__all__ = ["AsyncCluster", "LostAnswers", "SyncCluster", "async_cluster", "cluster"]
