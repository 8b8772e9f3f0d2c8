"""Connection of a producer or consumer to one broker. A lost connection is opened again.

A link opens the connection when there is work, and sends requests until the connection is lost. The
link then reports the loss, waits for `retry.backoff.ms` and connects again. Subclasses define the
work, the requests and the reaction to a loss.
"""

from abc import ABC, abstractmethod
from typing import Protocol, TypeAlias

import trio

from ottla.client.network.background import WakeUp
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.pipeline import Pipeline
from ottla.model.errors import ProtocolError, RefusedError
from ottla.model.ids import NodeId

Loss: TypeAlias = ConnectionLostError | ProtocolError | RefusedError
"""Types of errors after which a connection is unusable."""


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


def _first_of(group: BaseExceptionGroup[Loss]) -> Loss:
    error: Loss | BaseExceptionGroup[Loss] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
