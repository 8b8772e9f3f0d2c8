"""Requests to the coordinators of one transactional id, one at a time, with retries.

This module makes no decisions: `transaction_flow` interprets the responses. Only one request is in
flight at a time, so that no partition or offset is added to a transaction that has already ended.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import trio

from ottla.client.groups.coordinator import MOVED, TRANSACTION_KEY_TYPE, Coordinator
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.transactions.transaction_flow import (
    END_TXN_BUMPS_FROM,
    ResponseMeaning,
    TransactionCall,
    TransactionFlow,
    TransactionProtocol,
    deciding_code,
    verdict_of,
)
from ottla.client.transactions.transaction_messages import codes_of
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError, row_of
from ottla.model.limits import INT16_MAX
from ottla.model.settings.client import ProducerConfig
from ottla.wire.apis import END_TXN
from ottla.wire.codec_types import Message
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse

R = TypeVar("R", bound=Message)

FIRST_RETRY_S = 0.02
"""Delay before the first retry, in seconds. A coordinator completes the previous transaction in
about this time."""


class CoordinatorAnswer(NamedTuple):
    """A coordinator's response and its meaning. `message` is None if no response arrived in
    time."""

    verdict: ResponseMeaning
    code: ErrorCode
    message: Message | None = None
    why: str = ""


class CoordinatorCalls:
    """Sender of requests to the transaction coordinator of one transactional id, and to group
    coordinators."""

    def __init__(
        self, cluster: Cluster, config: ProducerConfig, flow: TransactionFlow, transactional_id: str
    ) -> None:
        self.coordinator = Coordinator(
            cluster, transactional_id, client_id=config.client_id, key_type=TRANSACTION_KEY_TYPE
        )
        self.flow = flow
        self._config = config
        self._lock = trio.Lock()
        """Lock that is held while a request to a coordinator is in flight."""

    def next_wait(self, wait_s: float) -> float:
        """Return the delay, in seconds, before the next retry. `wait_s` is the delay before the
        previous retry, in seconds."""
        return min(wait_s * 2, self._config.retry_backoff_ms / 1_000)

    def at_most(
        self, api_key: int, version_max: int, coordinator: Coordinator | None = None
    ) -> Callable[[], Awaitable[int]]:
        """Return a function that selects the version of an API: the highest version that both
        client and coordinator support, but at most `version_max`."""

        async def version() -> int:
            return min(await (coordinator or self.coordinator).version_of(api_key), version_max)

        return version

    async def end(self, deadline: float, *, is_commit: bool) -> CoordinatorAnswer:
        """Commit or abort the open transaction. Returns the coordinator's last response, with its
        meaning."""
        assert self.flow.identity is not None
        producer_id, epoch = self.flow.identity
        is_implicit = self.flow.protocol is TransactionProtocol.IMPLICIT
        return await self.ask(
            TransactionCall.COMMIT if is_commit else TransactionCall.ABORT,
            EndTxnRequest(
                transactional_id=self.coordinator.key,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=is_commit,
            ),
            EndTxnResponse,
            self.at_most(END_TXN, INT16_MAX if is_implicit else END_TXN_BUMPS_FROM - 1),
            deadline,
        )

    async def ask(
        self,
        call: TransactionCall,
        request: Message,
        response: type[R],
        version: Callable[[], Awaitable[int]],
        deadline: float,
        *,
        coordinator: Coordinator | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> CoordinatorAnswer:
        """Send a request, and repeat it until a response needs no retry or the deadline has passed.

        The request is not repeated after `is_wanted` has returned False.
        """
        asked = coordinator or self.coordinator
        wait_s = FIRST_RETRY_S
        last = CoordinatorAnswer(
            ResponseMeaning.RETRY, ErrorCode.REQUEST_TIMED_OUT, why="nothing answered"
        )
        with trio.CancelScope(deadline=deadline):
            async with self._lock:
                while is_wanted():
                    last = await self._attempt(call, request, response, version, asked)
                    if last.verdict is not ResponseMeaning.RETRY:
                        return last
                    if last.code in MOVED:
                        await asked.forget()
                    await trio.sleep(wait_s)
                    wait_s = self.next_wait(wait_s)
        return last

    async def _attempt(
        self,
        call: TransactionCall,
        request: Message,
        response: type[R],
        version: Callable[[], Awaitable[int]],
        coordinator: Coordinator,
    ) -> CoordinatorAnswer:
        is_answered = False
        try:
            number = await version()
            if call is not TransactionCall.INITIALISE:
                self.flow.on_sent()
            answer = await coordinator.request(
                request,
                response,
                timeout_s=self._config.request_timeout_ms / 1_000,
                version=number,
            )
            is_answered = True
        except (ConnectionLostError, ProtocolError) as error:
            return CoordinatorAnswer(
                ResponseMeaning.RETRY, ErrorCode.NETWORK_EXCEPTION, why=str(error)
            )
        except RefusedError as error:
            is_answered = True  # no request was sent
            return CoordinatorAnswer(verdict_of(call, error.code), error.code, why=str(error))
        finally:
            if not is_answered:
                self.flow.on_lost()
        code = deciding_code(call, codes_of(answer))
        return CoordinatorAnswer(verdict_of(call, code), code, answer, why=row_of(code).meaning)


async def version_of(coordinator: Coordinator, api_key: int) -> int:
    """Return the highest version of an API that both client and coordinator support, or -1 if the
    coordinator does not support the API."""
    try:
        return await coordinator.version_of(api_key)
    except RefusedError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return -1
