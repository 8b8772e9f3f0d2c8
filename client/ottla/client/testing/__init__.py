"""A whole cluster in your test's own trio loop, for tests of code that uses Kafka.

`async with open_test_cluster() as cluster:` starts a real controller and real brokers on free
ports in less than 200 ms and gives `cluster.bootstrap`, good for any Kafka client.  (The first one
of a process takes as long again for imports; `import_cluster` does these beforehand.)  For pytest:
`pytest_plugins = ["ottla.client.testing"]` gives the fixture `ottla_cluster`.

The cluster itself lives in `ottla.jepsen.in_process`, which may know brokers and controllers; a
client may not, so it is looked up by name when it is opened.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ottla.client.network.background import lone_errors
from ottla.model.ids import NodeId
from ottla.model.seams import Clock

pytest_plugins = ["ottla.client.testing.fixtures"]
"""Read by pytest, which loads these with this module; no import of pytest is needed here."""

CLUSTER_MODULE = "ottla.jepsen.in_process"


class ClusterUnderTest(Protocol):
    """A cluster at work."""

    @property
    def bootstrap(self) -> str:
        """Where clients ask first: `host:port,…` of every broker."""
        ...

    @property
    def brokers(self) -> Mapping[NodeId, Any]:
        """The brokers themselves (`ottla.broker.broker_driver.Broker`), by node id."""
        ...


@asynccontextmanager
async def open_test_cluster(
    *,
    broker_count: int = 1,
    directory: Path | None = None,
    settings: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[ClusterUnderTest]:
    """Start one controller and so many brokers; stop them cleanly at the end of the block.

    `settings` are Kafka's, by key, for brokers and controller.  `directory` keeps the files, so
    that a later cluster goes on with them.  `clock` is the brokers' time, where a test turns it.
    """
    cluster_module = import_cluster()
    with lone_errors():
        async with cluster_module.open_in_process_cluster(
            broker_count=broker_count, directory=directory, settings=settings, clock=clock
        ) as cluster:
            yield cluster


def import_cluster() -> Any:
    """Import what a cluster is made of; return the module that opens one."""
    return import_module(CLUSTER_MODULE)


__all__ = ["ClusterUnderTest", "import_cluster", "open_test_cluster"]
