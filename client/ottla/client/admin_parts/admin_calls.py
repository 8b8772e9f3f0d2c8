"""Code that all admin calls share: their base class, the function that opens an admin client, and
conversions of errors and partitions."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from ottla.client.instrumentation.metrics_push import ReportingClient, open_metrics_push
from ottla.client.network.bootstrap import addresses_of
from ottla.client.network.cluster import (
    DEFAULT_RECOVERY,
    Cluster,
    MetadataRecovery,
    open_cluster,
)
from ottla.client.network.retries import retry_until_timeout
from ottla.client.telemetry.client_metrics import ClientKind
from ottla.model.errors import ErrorCode, RefusedError, code_of
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.model.settings.security.client_security import ClientSecurity

T = TypeVar("T")

RETRY_WAIT_S = 0.1
ANSWER_WAIT_S = 5.0
"""Additional seconds that the client waits for a response after the timeout in the request has
ended. A broker may respond only at the end of that timeout.

With a smaller value, the client of a slow network reports a lost connection instead of the broker's
error. With a larger value, the client notices later that a broker does not respond.
"""


class AdminCalls(ReportingClient):
    """Base class of `Admin` and of the classes that it combines."""

    def __init__(self, cluster: Cluster, *, client_id: str, timeout_s: float) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._timeout_ms = int(timeout_s * 1_000)

    @property
    def cluster(self) -> Cluster:
        """Metadata of the cluster and connections to its brokers, which all admin calls use."""
        return self._cluster

    async def _retry_until_timeout(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Call `attempt`, which must be idempotent, and return its result. The call is repeated
        after a temporary failure, until the timeout of the admin client."""
        return await retry_until_timeout(
            attempt, timeout_s=self._timeout_s, retry_wait_s=RETRY_WAIT_S, passes=_passes
        )


C = TypeVar("C", bound=AdminCalls)


@asynccontextmanager
async def open_calls(
    calls: type[C],
    bootstrap: str | Iterable[str | tuple[str, int]],
    *,
    client_id: str = "ottla",
    timeout_s: float = 30.0,
    security: "ClientSecurity | None" = None,
    enable_metrics_push: bool = False,
    recovery: MetadataRecovery = DEFAULT_RECOVERY,
) -> AsyncIterator[C]:
    """Open and yield an admin client that has only the methods of the class `calls`."""
    async with (
        open_cluster(
            addresses_of(bootstrap),
            client_id=client_id,
            request_timeout_s=timeout_s + ANSWER_WAIT_S,
            login=None if security is None else security.login(),
            tls=None if security is None else security.tls(),
            recovery=recovery,
        ) as cluster,
        open_metrics_push(
            cluster, ClientKind.ADMIN, is_enabled=enable_metrics_push
        ) as metrics_push,
    ):
        opened = calls(cluster, client_id=client_id, timeout_s=timeout_s)
        opened._metrics_push = metrics_push
        yield opened


def _passes(error: RefusedError) -> bool:
    """Return True if an attempt that failed with `error` should be repeated.

    The error of a missing topic or partition is raised at once, although Kafka classifies it as
    retriable.
    """
    return error.is_retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def refusal_of(code: int, message: str | None = None) -> RefusedError | None:
    """Return a RefusedError with the error code and message of a response, or None if the code is
    NONE."""
    return None if code == ErrorCode.NONE else RefusedError(code_of(code), message or None)


def granted(outcome: T | RefusedError) -> T:
    """Return the result for one item of a request. Raises the RefusedError if the broker refused
    the item."""
    if isinstance(outcome, RefusedError):
        raise outcome
    return outcome


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, as requests contain them. Returns the partition numbers of each
    topic."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
