"""Connection of a producer or consumer to one broker. A lost connection is opened again.

A link opens the connection when there is work, and sends requests until the connection is lost. The
link then reports the loss, waits for `retry.backoff.ms` and connects again. Subclasses define the
work, the requests and the reaction to a loss.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NoReturn, Protocol, TypeAlias

import trio

from ottla.client.network.background import WakeUp
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.pipeline import Pipeline
from ottla.model.errors import ProtocolError, RefusedError
from ottla.model.ids import NodeId

Loss: TypeAlias = ConnectionLostError | ProtocolError | RefusedError
"""Types of errors after which a connection is unusable."""


GRACE_S = 0.1
"""Time in seconds in which an overdue response is read if it has arrived. With a smaller value, an
application that blocks the event loop for long loses connections. A larger value only delays the
loss of a hanging broker's connection."""


class LinkConfig(Protocol):
    """Interface of the connection settings that ProducerConfig and ConsumerConfig have in
    common."""

    @property
    def client_id(self) -> str:
        """Client id that is sent with each request."""
        ...

    @property
    def request_timeout_ms(self) -> int:
        """Timeout of a request, in ms."""
        ...

    @property
    def retry_backoff_ms(self) -> int:
        """Delay before a lost connection is opened again, in ms."""
        ...


class BrokerLink(ABC):
    """A connection to one broker. It is opened when there is work, and opened again after a
    loss."""

    def __init__(self, node: NodeId, cluster: Cluster, config: LinkConfig) -> None:
        self.node = node
        self.wake_up = WakeUp()
        """Signal that is set when there may be work."""
        self._cluster = cluster
        self._settings = config

    async def run(self) -> None:
        """Open the connection whenever there is work, and use it until it is lost. Runs until
        cancelled."""
        while True:
            while not self._has_work():
                await self.wake_up.wait()
            try:
                pipeline = await self._connect()
                try:
                    await self._serve(pipeline)
                finally:
                    await pipeline.aclose()
            except* (ConnectionLostError, ProtocolError, RefusedError) as group:
                # Several tasks may notice the loss at once; one reason is enough.
                self._lose(_first_of(group))
            await trio.sleep(self._settings.retry_backoff_ms / 1_000)

    @abstractmethod
    def _has_work(self) -> bool:
        """Return whether there is work that needs a connection now."""

    @abstractmethod
    async def _serve(self, pipeline: Pipeline) -> None:
        """Use an open connection until it is lost.  Returns only by raising an error."""

    @abstractmethod
    def _lose(self, why: Loss) -> None:
        """Process the loss of the connection, or a failure to open it."""

    async def _connect(self) -> Pipeline:
        address = self._cluster.address_of(self.node)
        if address is None:
            raise ConnectionLostError(f"broker {self.node} is not known to the cluster")
        settings = self._settings
        return await self._cluster.connect(
            address,
            client_id=settings.client_id,
            timeout_s=settings.request_timeout_ms / 1_000,
        )


async def watch_responses(
    pipeline: Pipeline,
    due_s: Callable[[], float],
    overdue: Callable[[], str],
    *,
    patience_s: float,
) -> NoReturn:
    """Raise ConnectionLostError when a response is overdue. A cancel scope for each request, or one
    with a new deadline for each, would cost as much as sending the request.

    `due_s` returns the time on the event loop's clock, in seconds, until which the response to the
    oldest request must have arrived, or infinity if no request is in flight. `overdue` returns the
    end of the error message. No request is due earlier than `patience_s` seconds after it was sent.
    """
    while True:
        now_s, first_due_s = trio.current_time(), due_s()
        if now_s >= first_due_s:
            # The application may have blocked the event loop, so that the response has arrived and
            # is not read yet.
            await trio.sleep(GRACE_S)
            if due_s() == first_due_s:
                raise ConnectionLostError(f"{pipeline.address} {overdue()}")
            continue
        await trio.sleep_until(min(first_due_s, now_s + patience_s))


def _first_of(group: BaseExceptionGroup[Loss]) -> Loss:
    error: Loss | BaseExceptionGroup[Loss] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
