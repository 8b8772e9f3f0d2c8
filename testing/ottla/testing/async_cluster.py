"""A cluster for asyncio tests.  It runs in a thread of its own, and the test's loop awaits its
calls."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from ottla.client.testing import LostAnswers
from ottla.model.settings.security.client_security import ClientSecurity
from ottla.testing.sync_cluster import SyncCluster, start_thread


class AsyncCluster:
    """A running cluster in a thread of its own, and its faults.  Created by `async_cluster`.

    Calls that take time are coroutines, so that clients in the test's loop continue to run
    meanwhile. Brokers are identified by node id, from 1 on.  Methods raise ValueError if the broker
    is unknown, or if it is stopped and the method needs a running one.
    """

    def __init__(self, inner: SyncCluster) -> None:
        self._inner = inner

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses: `host:port,…` of every broker, including stopped ones."""
        return self._inner.bootstrap

    @property
    def client_settings(self) -> dict[str, str]:
        """Settings of a client, by librdkafka's keys: bootstrap.servers, and the login if the
        cluster is secure."""
        return self._inner.client_settings

    @property
    def security(self) -> ClientSecurity | None:
        """Login of the user `admin`, for Ottla's clients.  None if the cluster is not secure."""
        return self._inner.security

    async def stop(self, node: int) -> None:
        """Stop a broker cleanly. Its partition leaderships move to other brokers first, then its
        connections are closed."""
        await asyncio.to_thread(self._inner.stop, node)

    async def start(self, node: int) -> None:
        """Start a stopped broker on its former port and with its files.  Returns when it accepts
        requests."""
        await asyncio.to_thread(self._inner.start, node)

    @contextmanager
    def paused(self, node: int) -> Iterator[None]:
        """Suspend a broker during the block.  It reads no requests and sends no responses, but its
        connections stay open."""
        with self._inner.paused(node):
            yield

    @contextmanager
    def refusing(self, node: int) -> Iterator[None]:
        """Refuse new connections to a broker during the block. Existing connections stay open."""
        with self._inner.refusing(node):
            yield

    def cut_connections(self, node: int) -> None:
        """Close every open connection to a broker."""
        self._inner.cut_connections(node)

    def slow(self, node: int, seconds: float) -> None:
        """Delay each later response of a broker by a time in seconds.  0 ends the delay."""
        self._inner.slow(node, seconds)

    def lose_answers(self, api: str, *, count: int = 1) -> LostAnswers:
        """Process the next requests of an API, but close the connection instead of sending the
        response.

        `count` is the number of requests.  `api` is the name in Kafka's protocol, such as Produce,
        OffsetCommit or EndTxn.  Returns an object that counts the responses lost so far.
        """
        return self._inner.lose_answers(api, count=count)

    async def advance(self, seconds: float, *, step_s: float | None = None) -> None:
        """Advance the brokers' clock.  Retention, group sessions and transaction timeouts that are
        then due take effect at once.

        Clients in the test's loop keep the machine's clock.
        """
        await asyncio.to_thread(partial(self._inner.advance, seconds, step_s=step_s))

    async def reset(self) -> None:
        """End all faults, close all connections, and delete the resources that were created since
        the cluster started.

        Topics, groups, transactions, dynamic settings, quotas, users, ACLs and tokens are deleted.
        Resources that existed at the start and were deleted by a test are not restored. The clock
        is not set back. Raises RuntimeError if a client that was not closed continues to create
        topics.
        """
        await asyncio.to_thread(self._inner.reset)


@asynccontextmanager
async def async_cluster(
    *,
    broker_count: int = 1,
    settings: Mapping[str, str] | None = None,
    directory: Path | None = None,
    is_secure: bool = False,
) -> AsyncIterator[AsyncCluster]:
    """Start a cluster of a controller and `broker_count` brokers in a thread, and yield it. It
    stops at the end of the block.

    `settings` are Kafka's settings by key, for brokers and controller.  If `directory` is given,
    the files are kept there, and a later cluster continues with them.  A secure cluster has TLS on
    every connection, logins by SCRAM and an authorizer (requires the extra `secure`).
    """
    thread, inner = await asyncio.to_thread(
        partial(
            start_thread,
            broker_count=broker_count,
            settings=settings,
            directory=directory,
            is_secure=is_secure,
        )
    )
    try:
        yield AsyncCluster(SyncCluster(thread, inner))
    finally:
        await asyncio.to_thread(thread.close)
