"""A whole cluster in the trio loop of your test, for tests of code that uses Kafka.

`async with open_test_cluster() as cluster:` starts a real controller and real brokers on free
ports, in less than 200 ms.  `cluster.bootstrap` contains their addresses, for any Kafka client.
The first cluster of a process takes twice as long, because modules are imported, unless
`import_cluster` was called before.  With pytest, `pytest_plugins = ["ottla.client.testing"]`
provides the fixture `ottla_cluster`.  The methods of `ClusterUnderTest` stop, pause, slow down and
cut off brokers, lose responses and advance the time.

`ottla.testing` provides the same cluster for asyncio and for synchronous tests, and implements it
(`ottla.testing.in_process`).  The client package must not import brokers, so it imports that module
by name when a cluster is opened.
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
"""Plugins that pytest loads together with this module, so that this module itself need not import
pytest."""

CLUSTER_MODULE = "ottla.testing.in_process"


class ClusterUnderTest(Protocol):
    """A running cluster, and the faults that can be injected into it.

    Brokers are identified by node id, starting at 1.  All methods raise ValueError for an unknown
    broker, or for a stopped broker if the method needs a running one.  The faults of a broker
    affect other brokers as well as clients.
    """

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses, `host:port,…` of every broker, including stopped ones."""
        ...

    @property
    def client_settings(self) -> Mapping[str, str]:
        """Settings for connecting a client, with librdkafka's keys: bootstrap.servers, and the
        login if the cluster is secure."""
        ...

    @property
    def security(self) -> ClientSecurity | None:
        """Login as user admin for Ottla's clients. None if the cluster is not secure."""
        ...

    @property
    def brokers(self) -> Mapping[NodeId, Any]:
        """The running brokers (`ottla.broker.broker_driver.Broker`), by node id."""
        ...

    async def stop(self, node: int) -> None:
        """Stop a broker cleanly.  Its leaderships move to other brokers before its connections are
        closed.

        The broker refuses connections until it is started again.
        """
        ...

    async def start(self, node: int) -> None:
        """Start a stopped broker again, with its port and its files.  Returns when it accepts
        requests."""
        ...

    def paused(self, node: int) -> AbstractContextManager[None]:
        """Return a context manager that suspends a broker during its block: the broker sends no
        responses, but keeps its connections.

        New connections are accepted, and get no responses either. Requests that arrive during the
        block are processed after it.
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
        """Delay each response of a broker by `seconds` from now on.  0 ends the delay."""
        ...

    def lose_answers(self, api: str, *, count: int = 1) -> LostAnswers:
        """Process the next requests of an API, but close their connections instead of responding.

        `api` is the name in Kafka's protocol, such as Produce, OffsetCommit or EndTxn.  The next
        `count` responses of any broker are lost. The returned object counts the lost responses.
        """
        ...

    async def reset(self) -> None:
        """End all injected faults, close all connections, and delete all objects that were created
        since the start of the cluster.

        This deletes topics, groups, transactions, dynamic settings, quotas, users, ACLs and tokens.
        Objects that existed at the start and that a test has deleted are not restored, and advanced
        time is not set back. Raises RuntimeError if a client that was not closed continues to
        create topics.
        """
        ...

    async def advance(self, seconds: float, *, step_s: float | None = None) -> None:
        """Advance the time for brokers, clients and the test itself, without waiting.

        The time advances in steps of `step_s`, so that running clients send their heartbeats in
        between. The default is one second, or a 200th of `seconds` if that is longer. In a single
        step longer than a timeout, no heartbeat arrives.
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
    """Start a cluster of one controller and `broker_count` brokers, and yield it. It is stopped
    cleanly at the end of the caller's `async with` block.

    `settings` are Kafka's settings, by key, for the brokers and the controller. `directory` keeps
    the files, so that a later cluster can continue with them. `clock` is the brokers' clock, if the
    test advances it itself; `advance` then raises an error. A secure cluster has TLS on every
    connection, logins by SCRAM and an authorizer (needs the extra `secure`); clients connect with
    `security` or `client_settings`.
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
    """Import the modules of a cluster beforehand, and return the module that opens test
    clusters."""
    # A thousand modules make many lasting objects: collections within would cost a tenth more.
    with collection_paused():
        return import_module(CLUSTER_MODULE)


__all__ = ["ClusterUnderTest", "LostAnswers", "import_cluster", "open_test_cluster"]
