"""A whole cluster in your test's own trio loop, for tests of code that uses Kafka.

`async with open_test_cluster() as cluster:` starts a real controller and real brokers on free
ports in less than 200 ms and gives `cluster.bootstrap`, good for any Kafka client.  (The first one
of a process takes as long again for imports; `import_cluster` does these beforehand.)  For pytest:
`pytest_plugins = ["ottla.client.testing"]` gives the fixture `ottla_cluster`.  Brokers are stopped,
paused, slowed and cut off, answers are lost and time is advanced by `ClusterUnderTest`'s methods.

The cluster itself lives in `ottla.jepsen.in_process`, which may know brokers and controllers; a
client may not, so it is looked up by name when it is opened.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ottla.client.network.background import lone_errors
from ottla.client.testing.faults import LostAnswers
from ottla.model.ids import NodeId
from ottla.model.seams import Clock

pytest_plugins = ["ottla.client.testing.fixtures"]
"""Read by pytest, which loads these with this module; no import of pytest is needed here."""

CLUSTER_MODULE = "ottla.jepsen.in_process"


class ClusterUnderTest(Protocol):
    """A cluster at work, and what can be done to it.

    Brokers are named by node id, from 1 on.  Raises ValueError for one that there is not, or that
    is stopped where a running one is needed.  Faults of a broker also meet the other brokers.
    """

    @property
    def bootstrap(self) -> str:
        """Where clients ask first: `host:port,…` of every broker, stopped ones too."""
        ...

    @property
    def brokers(self) -> Mapping[NodeId, Any]:
        """The brokers that run (`ottla.broker.broker_driver.Broker`), by node id."""
        ...

    async def stop(self, node: int) -> None:
        """Stop a broker cleanly: its leaderships move first, its connections end.

        Until it is started again, connections to it are refused.
        """
        ...

    async def start(self, node: int) -> None:
        """Start a stopped broker on its port and with its files; return when it serves."""
        ...

    def paused(self, node: int) -> AbstractContextManager[None]:
        """Let a broker answer nothing during the block; its connections stay.

        New connections open, and hear nothing either.  What arrived is served after the block.
        """
        ...

    def refusing(self, node: int) -> AbstractContextManager[None]:
        """Let a broker accept no connection during the block; those that are open stay."""
        ...

    def cut_connections(self, node: int) -> None:
        """Close every connection to a broker that is open now."""
        ...

    def slow(self, node: int, seconds: float) -> None:
        """Let each answer of a broker leave later, by a time in seconds, from now on; 0 ends it."""
        ...

    def lose_answers(self, api: str, *, count: int = 1) -> LostAnswers:
        """Execute the next requests of an API, but close their connections instead of answering.

        `api` is the name in Kafka's protocol, such as Produce, OffsetCommit or EndTxn.  The next
        `count` answers of any broker are lost.
        """
        ...

    async def advance(self, seconds: float, *, step_s: float | None = None) -> None:
        """Let time pass at once for everything in the loop: brokers, clients and the test itself.

        In steps of a second (of a 200th of the time where that is longer), so that clients that are
        alive send their heartbeats between them.  In one step longer than a timeout nothing is
        heard of anyone.
        """
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
    that a later cluster goes on with them.  `clock` is the brokers' time, where a test turns it;
    `advance` is refused then.
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


__all__ = ["ClusterUnderTest", "LostAnswers", "import_cluster", "open_test_cluster"]
