"""A complete Kafka-compatible cluster in the trio event loop of a test, for tests of code that uses
Kafka.

`async with open_test_cluster() as cluster:` starts a real controller and real brokers on free
ports, in less than 200 ms. `cluster.bootstrap` contains their addresses, for any Kafka client. The
first cluster of a process takes twice as long, because it imports modules; a call of
`import_cluster` does this earlier. With pytest, `pytest_plugins = ["ottla.client.testing"]`
provides the fixture `ottla_cluster`. The methods of `ClusterUnderTest` stop, pause, slow down and
cut off brokers, lose responses and advance the time.

`ottla.testing` implements the cluster (`ottla.testing.in_process`) and also provides it for asyncio
and for synchronous tests. The client package must not import brokers, so it imports that module by
name when a cluster is opened.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import trio

from ottla.client.network.background import lone_errors
from ottla.client.testing.faults import LostAnswers
from ottla.model.garbage import collection_paused
from ottla.model.ids import NodeId
from ottla.model.seams import Clock
from ottla.model.settings.security.client_security import ClientSecurity

pytest_plugins = ["ottla.client.testing.fixtures"]
"""Names of the modules that pytest imports as plugins when it loads this module. Because only
pytest imports them, this module works without pytest."""

CLUSTER_MODULE = "ottla.testing.in_process"


class ClusterUnderTest(Protocol):
    """A running test cluster, with methods that inject faults.

    Brokers are identified by node id, starting at 1. All methods raise ValueError if the broker is
    unknown, or if the broker is stopped and the method requires a running broker. The faults of a
    broker affect other brokers as well as clients.
    """

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses `host:port,…` of all brokers, including stopped ones."""
        ...

    @property
    def client_settings(self) -> Mapping[str, str]:
        """Client settings under librdkafka's keys: `bootstrap.servers` and, if the cluster is
        secure, the login."""
        ...

    @property
    def security(self) -> ClientSecurity | None:
        """Login of the user `admin`, as settings for Ottla's clients. None if the cluster is not
        secure."""
        ...

    @property
    def brokers(self) -> Mapping[NodeId, Any]:
        """The running brokers (`ottla.broker.broker_driver.Broker`), by node id."""
        ...

    async def stop(self, node: int) -> None:
        """Stop a broker cleanly. Its partition leaderships move to other brokers before its
        connections are closed.

        The broker refuses connections until it is started again.
        """
        ...

    async def start(self, node: int) -> None:
        """Start a stopped broker on its former port, with its former files. Returns when the broker
        accepts requests."""
        ...

    def paused(self, node: int) -> AbstractContextManager[None]:
        """Return a context manager that suspends a broker during its block. The broker sends no
        responses, but keeps its connections.

        The operating system still accepts new connections, but they get no responses either.
        Requests that arrive during the block are processed after the block.
        """
        ...

    def refusing(self, node: int) -> AbstractContextManager[None]:
        """Return a context manager that makes a broker refuse new connections during its block.
        Open connections are not affected."""
        ...

    def cut_connections(self, node: int) -> None:
        """Close all open connections of a broker."""
        ...

    def slow(self, node: int, seconds: float) -> None:
        """Delay each later response of a broker by `seconds`. The value 0 ends the delay."""
        ...

    def lose_answers(self, api: str, *, count: int = 1) -> LostAnswers:
        """Lose the responses to the next requests of one API. A broker processes each request, but
        closes the connection instead of sending the response.

        `api` is the name in Kafka's protocol, such as Produce, OffsetCommit or EndTxn. The next
        `count` responses of any broker are lost. Returns an object that counts the lost responses.
        """
        ...

    async def reset(self) -> None:
        """End all injected faults, close all connections, and delete the resources that clients
        created since the start of the cluster.

        The resources are topics, groups, transactions, dynamic settings, quotas, users, ACLs and
        tokens. Resources that existed at the start and that a test has deleted are not restored,
        and advanced time is not set back. Raises RuntimeError if a client that the test did not
        close continues to create topics.
        """
        ...

    async def advance(self, seconds: float, *, step_s: float | None = None) -> None:
        """Advance the time of brokers, clients and the test itself by `seconds`, without waiting.

        The time advances in steps of `step_s` seconds, so that running clients send their
        heartbeats in between. The default step is one second or a 200th of `seconds`, whichever is
        longer. If a step is longer than a session timeout, heartbeats are missed.
        """
        ...


@asynccontextmanager
async def open_test_cluster(
    *,
    broker_count: int = 1,
    directory: Path | None = None,
    settings: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    is_secure: bool = False,
) -> AsyncIterator[ClusterUnderTest]:
    """Start a cluster of one controller and `broker_count` brokers, and yield the cluster. It is
    stopped cleanly at the end of the caller's `async with` block.

    `settings` contains Kafka settings by key, for the brokers and the controller. If `directory` is
    not None, the cluster stores its files there, and a later cluster can continue with them.
    `clock` is the brokers' clock if the test advances it itself; `advance` then raises an error.

    With `is_secure`, the cluster encrypts every connection with TLS, authenticates users by SCRAM
    and has an authorizer. It requires the extra `secure`, and clients connect with `security` or
    `client_settings`.
    """
    if not trio.lowlevel.in_trio_run():
        raise RuntimeError(
            "this is the test cluster for trio; with asyncio use ottla.testing.async_cluster, or "
            'pytest_plugins = ["ottla.testing"]'
        )
    cluster_module = import_cluster()
    with lone_errors():
        async with cluster_module.open_in_process_cluster(
            broker_count=broker_count,
            directory=directory,
            settings=settings,
            clock=clock,
            is_secure=is_secure,
        ) as cluster:
            yield cluster


def import_cluster() -> Any:
    """Import the modules that a test cluster needs, so that the first cluster starts faster.
    Returns the module that opens test clusters."""
    # A thousand modules make many lasting objects: collections within would cost a tenth more.
    with collection_paused():
        return import_module(CLUSTER_MODULE)


__all__ = ["ClusterUnderTest", "LostAnswers", "import_cluster", "open_test_cluster"]
