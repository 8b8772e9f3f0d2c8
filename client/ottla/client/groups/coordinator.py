"""The way to a coordinator: found when it is not known, found again when it has moved.

Of a group by its id, or of a producer's transactions by its transactional id.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from ottla.client.network.cluster import Cluster, raise_for
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.pipeline import Pipeline
from ottla.client.network.told import only
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
"""Answers after which the coordinator is looked for again."""
CONNECT_TIMEOUT_S = 10.0


class Coordinator:
    """The coordinator of one key, on a connection of its own: what waits there delays nothing else.

    The key is a group's id, or a transactional id.
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
        """Where it was found, `host:port`; None before that, and when it is looked for again."""
        return None if self._pipeline is None else self._pipeline.address

    async def request(
        self, message: Message, response: type[R], *, timeout_s: float, version: int | None = None
    ) -> R:
        """Send one request to whoever coordinates now; ConnectionLostError when that fails.

        That nobody coordinates at present is such a failure: it passes.
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
        """Return the highest version of an API both sides speak."""
        return (await self._opened()).version_of(api_key)

    async def feature_level(self, name: str) -> int:
        """Return the finalised level of a feature, as the connection's broker showed it last."""
        return (await self._opened()).feature_level(name)

    async def refresh_versions(self, timeout_s: float) -> None:
        """Ask the coordinator again which versions and features there are."""
        pipeline = await self._opened()
        try:
            with trio.fail_after(timeout_s):
                await pipeline.negotiate()
        except (trio.TooSlowError, ConnectionLostError, ProtocolError) as error:
            await self._drop(pipeline)
            raise ConnectionLostError(f"{pipeline.address}: {error}") from error

    async def forget(self) -> None:
        """Look for the coordinator again with the next request."""
        if self._pipeline is not None:
            await self._drop(self._pipeline)

    async def forget_unanswered(self) -> None:
        """Drop a connection on which an answer is due: what is asked next would wait behind it."""
        if self._pipeline is not None and self._pipeline.in_flight_count:
            await self._drop(self._pipeline)

    async def until_it_answers(self, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """Repeat an attempt while the coordinator moves, loads or is out of reach.

        The attempt raises RefusedError for the code of its answer; what is not retriable is raised
        at once, and the last trouble when the time is over.
        """
        trouble: RefusedError | ConnectionLostError = ConnectionLostError("nobody was asked")
        with trio.move_on_after(timeout_s):
            while True:
                try:
                    return await attempt()
                except ConnectionLostError as error:
                    refusal = error.__cause__
                    trouble = refusal if isinstance(refusal, RefusedError) else error
                except RefusedError as error:
                    trouble = error
                    if not error.is_retriable:
                        raise
                    if error.code in MOVED:
                        await self.forget()
                await trio.sleep(self._retry_wait_s)
        raise trouble

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
    """Open the way to a group's coordinator; close its connection at the end."""
    coordinator = Coordinator(cluster, group_id, client_id=client_id)
    try:
        yield coordinator
    finally:
        await coordinator.forget()
