"""What every group of an operator's calls needs: the cluster, a bound in time, patience."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from ottla.client.instrumentation.metrics_push import ReportingClient, open_metrics_push
from ottla.client.network.bootstrap import addresses_of
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.network.patience import sit_out
from ottla.client.telemetry.client_metrics import ClientKind
from ottla.model.errors import ErrorCode, RefusedError, code_of
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.model.settings.client_security import ClientSecurity

T = TypeVar("T")

RETRY_WAIT_S = 0.1
ANSWER_WAIT_S = 5.0
"""Time for an answer that a broker sends when the time it was given is over; with less a slow
network turns its reason into a lost connection, with more a broker that hangs is noticed later."""


class AdminCalls(ReportingClient):
    """The ground `Admin` and its parts stand on."""

    def __init__(self, cluster: Cluster, *, client_id: str, timeout_s: float) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._timeout_ms = int(timeout_s * 1_000)

    @property
    def cluster(self) -> Cluster:
        """The view of the cluster that all calls go through."""
        return self._cluster

    async def _sit_out(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat what may be repeated without harm, while the trouble is one that passes."""
        return await sit_out(
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
) -> AsyncIterator[C]:
    """Open one group of an operator's calls, or several that a class puts together."""
    async with (
        open_cluster(
            addresses_of(bootstrap),
            client_id=client_id,
            request_timeout_s=timeout_s + ANSWER_WAIT_S,
            login=None if security is None else security.login(),
            tls=None if security is None else security.tls(),
        ) as cluster,
        open_metrics_push(
            cluster, ClientKind.ADMIN, is_enabled=enable_metrics_push
        ) as metrics_push,
    ):
        opened = calls(cluster, client_id=client_id, timeout_s=timeout_s)
        opened.metrics_push = metrics_push
        yield opened


def _passes(error: RefusedError) -> bool:
    """Return whether to ask again: an operator wants to know at once what does not exist."""
    return error.is_retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def refusal_of(code: int, message: str | None = None) -> RefusedError | None:
    """Return the refusal that an answer's error code is, with its message; None for NONE."""
    return None if code == ErrorCode.NONE else RefusedError(code_of(code), message or None)


def granted(outcome: T | RefusedError) -> T:
    """Return what became of one item.  Raises RefusedError if it was refused."""
    if isinstance(outcome, RefusedError):
        raise outcome
    return outcome


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, as requests name them."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
