"""A cluster for synchronous tests.  It works with any Kafka client and any test framework, and does
not need an event loop."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ottla.client.testing import ClusterUnderTest, LostAnswers, open_test_cluster
from ottla.model.settings.security.client_security import ClientSecurity
from ottla.testing.cluster_thread import ClusterThread

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        # With the default of 50 partitions, the first group of each test would take longer to
        # start.
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
    }
)
"""Default settings of the nodes in test clusters. Settings that the caller passes take
precedence."""


class SyncCluster:
    """A running cluster in a separate thread, with methods that inject faults. Created by
    `cluster`.

    Each method blocks until the cluster has done the work. Brokers are identified by node id; the
    first broker has id 1. Methods raise ValueError if the broker is unknown, or if the broker is
    stopped and the method needs a running broker.
    """

    def __init__(self, thread: ClusterThread, inner: ClusterUnderTest) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses `host:port,…` of all brokers, including stopped brokers."""
        return self._inner.bootstrap

    @property
    def client_settings(self) -> dict[str, str]:
        """Client settings under librdkafka's keys: `bootstrap.servers` and, if the cluster is
        secure, the login."""
        return dict(self._inner.client_settings)

    @property
    def security(self) -> ClientSecurity | None:
        """Login of the user `admin`, as settings for Ottla's clients. None if the cluster is not
        secure."""
        return self._inner.security

    def stop(self, node: int) -> None:
        """Stop a broker cleanly. Its partition leaderships move to other brokers first, then its
        connections are closed."""
        self._thread.call(self._inner.stop, node)

    def start(self, node: int) -> None:
        """Start a stopped broker on its former port, with the files it had. Returns when the broker
        accepts requests."""
        self._thread.call(self._inner.start, node)

    @contextmanager
    def paused(self, node: int) -> Iterator[None]:
        """Suspend a broker during the block.  It reads no requests and sends no responses, but its
        connections stay open."""
        block = self._thread.call_sync(self._inner.paused, node)
        self._thread.call_sync(block.__enter__)
        try:
            yield
        finally:
            self._thread.call_sync(block.__exit__, None, None, None)

    @contextmanager
    def refusing(self, node: int) -> Iterator[None]:
        """Refuse new connections to a broker during the block. Existing connections stay open."""
        block = self._thread.call_sync(self._inner.refusing, node)
        self._thread.call_sync(block.__enter__)
        try:
            yield
        finally:
            self._thread.call_sync(block.__exit__, None, None, None)

    def cut_connections(self, node: int) -> None:
        """Close every open connection to a broker."""
        self._thread.call_sync(self._inner.cut_connections, node)

    def slow(self, node: int, seconds: float) -> None:
        """Delay each later response of a broker by the given number of seconds. The value 0 ends
        the delay."""
        self._thread.call_sync(self._inner.slow, node, seconds)

    def lose_answers(self, api: str, *, count: int = 1) -> LostAnswers:
        """Lose the responses to the next requests of one API: the broker processes each request,
        but closes the connection instead of sending the response.

        `count` is the number of requests. `api` is the name in Kafka's protocol, such as Produce,
        OffsetCommit or EndTxn. Returns an object that counts the responses lost so far.
        """
        return self._thread.call_sync(partial(self._inner.lose_answers, api, count=count))

    def advance(self, seconds: float, *, step_s: float | None = None) -> None:
        """Advance the brokers' clock by the given number of seconds. Retention, group sessions and
        transaction timeouts that are then due take effect at once.

        Clients outside the cluster's thread keep the machine's clock.
        """
        self._thread.call(partial(self._inner.advance, seconds, step_s=step_s))

    def reset(self) -> None:
        """End all faults, close all connections, and delete the resources that clients created
        since the cluster started.

        The resources are topics, groups, transactions, dynamic settings, quotas, users, ACLs and
        tokens. Resources that existed at the start and were deleted by a test are not restored. The
        clock is not set back. Raises RuntimeError if a client that the test did not close continues
        to create topics.
        """
        self._thread.call(self._inner.reset)


@contextmanager
def cluster(
    *,
    broker_count: int = 1,
    settings: Mapping[str, str] | None = None,
    directory: Path | None = None,
    is_secure: bool = False,
) -> Iterator[SyncCluster]:
    """Start a cluster of one controller and `broker_count` brokers in a thread, and yield the
    cluster. The cluster is stopped at the end of the block.

    `settings` contains Kafka settings by key, for brokers and controller. If `directory` is given,
    the cluster keeps its files there, and a later cluster can continue with them. A secure cluster
    encrypts every connection with TLS, authenticates users by SCRAM and has an authorizer. It
    requires the extra `secure`.
    """
    thread, inner = start_thread(
        broker_count=broker_count, settings=settings, directory=directory, is_secure=is_secure
    )
    try:
        yield SyncCluster(thread, inner)
    finally:
        thread.close()


def start_thread(
    *,
    broker_count: int,
    settings: Mapping[str, str] | None,
    directory: Path | None,
    is_secure: bool,
) -> tuple[ClusterThread, ClusterUnderTest]:
    """Start a cluster in a new thread. Returns the thread and the cluster. The caller must close
    the thread."""
    thread = ClusterThread(
        partial(
            open_test_cluster,
            broker_count=broker_count,
            settings={**SETTINGS, **(settings or {})},
            directory=directory,
            is_secure=is_secure,
        )
    )
    return thread, thread.start()
