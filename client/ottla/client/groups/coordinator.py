"""Connection to the coordinator of a group or of a transactional id. The client looks up the
coordinator at first use, and again after the coordinator has moved.

The key of a coordinator is a group id, or the transactional id of a producer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from ottla.client.network.answer_checks import only
from ottla.client.network.cluster import Cluster, raise_for
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.pipeline import Pipeline
from ottla.client.network.retries import retry_until_timeout
from ottla.client.telemetry.measures import CoordinatorMeasures
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.wire.apis import COORDINATOR_KEYS_FROM
from ottla.wire.codec_types import Message
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse

R = TypeVar("R", bound=Message)
T = TypeVar("T")

GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
KINDS = {GROUP_KEY_TYPE: "group", TRANSACTION_KEY_TYPE: "transactional id"}
MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Error codes which mean that the broker is not the coordinator, or is no longer. The client then
looks up the coordinator again."""
CONNECT_TIMEOUT_S = 10.0


class Coordinator:
    """The coordinator of one group or transactional id, with a connection of its own. A request
    that waits at the coordinator therefore does not delay other requests to the same broker.

    The key is a group id or a transactional id.
    """

    def __init__(
        self,
        cluster: Cluster,
        key: str,
        *,
        client_id: str,
        retry_wait_s: float = 0.1,
        key_type: int = GROUP_KEY_TYPE,
    ) -> None:
        self.key = key
        self.measures = CoordinatorMeasures()
        self._key_type = key_type
        self._cluster = cluster
        self._client_id = client_id
        self._retry_wait_s = retry_wait_s
        self._pipeline: Pipeline | None = None
        self._opening = trio.Lock()

    @property
    def address(self) -> str | None:
        """Address of the coordinator as `host:port`, or None if the coordinator is unknown."""
        return None if self._pipeline is None else self._pipeline.address

    async def request(
        self, message: Message, response: type[R], *, timeout_s: float, version: int | None = None
    ) -> R:
        """Send one request to the current coordinator, and return its response.

        Raises ConnectionLostError if the request fails or if the coordinator is unknown at present.
        Both conditions are temporary.
        """
        try:
            pipeline = await self._opened()
        except RefusedError as refusal:
            if not refusal.is_retriable:
                raise
            raise ConnectionLostError(
                f"{KINDS[self._key_type]} {self.key!r}: {refusal}"
            ) from refusal
        try:
            with trio.fail_after(timeout_s):
                return await pipeline.request(message, response, version)
        except trio.TooSlowError:
            await self._drop(pipeline)
            raise ConnectionLostError(f"{pipeline.address} did not answer") from None
        except (ConnectionLostError, ProtocolError):
            await self._drop(pipeline)
            raise

    async def version_of(self, api_key: int) -> int:
        """Return the highest version of an API that both this client and the coordinator
        support."""
        return (await self._opened()).version_of(api_key)

    async def feature_level(self, name: str) -> int:
        """Return the finalized level of a feature, as the coordinator's broker last reported it."""
        return (await self._opened()).feature_level(name)

    async def refresh_versions(self, timeout_s: float) -> None:
        """Request the supported API versions and the feature levels of the coordinator's broker
        again."""
        pipeline = await self._opened()
        try:
            with trio.fail_after(timeout_s):
                await pipeline.negotiate()
        except (trio.TooSlowError, ConnectionLostError, ProtocolError) as error:
            await self._drop(pipeline)
            raise ConnectionLostError(f"{pipeline.address}: {error}") from error

    async def forget(self) -> None:
        """Discard the known coordinator, so that the next request looks it up again."""
        if self._pipeline is not None:
            await self._drop(self._pipeline)

    async def forget_unanswered(self) -> None:
        """Close the connection if a request on it has no response yet. Otherwise, later requests
        would wait behind that request."""
        if self._pipeline is not None and self._pipeline.in_flight_count:
            await self._drop(self._pipeline)

    async def until_it_answers(self, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """Call `attempt` and return its result. Repeats the call while the coordinator is moving,
        is loading its state or is unreachable.

        `attempt` raises RefusedError for the error code of a response. A permanent error is raised
        at once. After the timeout, the last temporary error is raised.
        """

        async def attempt_where_it_is() -> T:
            try:
                return await attempt()
            except RefusedError as error:
                if error.is_retriable and error.code in MOVED:
                    await self.forget()
                raise

        try:
            return await retry_until_timeout(
                attempt_where_it_is, timeout_s=timeout_s, retry_wait_s=self._retry_wait_s
            )
        except ConnectionLostError as error:
            if isinstance(error.__cause__, RefusedError):
                raise error.__cause__ from None
            raise

    async def _opened(self) -> Pipeline:
        async with self._opening:
            if self._pipeline is None:
                address = await self._find()
                self._pipeline = await self._cluster.connect(
                    address, client_id=self._client_id, timeout_s=CONNECT_TIMEOUT_S
                )
            return self._pipeline

    async def _find(self) -> tuple[str, int]:
        request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self.key])
        answer = await self._cluster.request(
            request, FindCoordinatorResponse, version=COORDINATOR_KEYS_FROM
        )
        found = only(answer.coordinators, "coordinator")
        raise_for(found.error_code, found.error_message or None)
        return found.host, found.port

    async def _drop(self, pipeline: Pipeline) -> None:
        if self._pipeline is pipeline:
            self._pipeline = None
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await pipeline.aclose()


@asynccontextmanager
async def open_coordinator(
    cluster: Cluster, group_id: str, *, client_id: str
) -> AsyncIterator[Coordinator]:
    """Yield the coordinator of a group. Its connections are closed at the end of the caller's
    block."""
    coordinator = Coordinator(cluster, group_id, client_id=client_id)
    try:
        yield coordinator
    finally:
        await coordinator.forget()
