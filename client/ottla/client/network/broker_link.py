"""How a producer's and a consumer's connection to one broker comes to be, and comes back.

A link connects once there is something to do, serves until the connection is lost, says so, waits
a little and begins again.  What it does meanwhile is each kind's own.
"""

from abc import ABC, abstractmethod
from typing import Protocol, TypeAlias

import trio

from ottla.client.network.background import Bell
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.pipeline import Pipeline
from ottla.model.errors import ProtocolError, RefusedError
from ottla.model.ids import NodeId

Loss: TypeAlias = ConnectionLostError | ProtocolError | RefusedError
"""Why a connection is of no use any more."""


class LinkConfig(Protocol):
    """What ProducerConfig and ConsumerConfig say of connections."""

    @property
    def client_id(self) -> str:
        """What brokers call this client."""
        ...

    @property
    def request_timeout_ms(self) -> int:
        """How long a broker may take to answer."""
        ...

    @property
    def retry_backoff_ms(self) -> int:
        """The wait before a link connects again."""
        ...


class BrokerLink(ABC):
    """A connection to one broker that is there whenever it is needed."""

    def __init__(self, node: NodeId, cluster: Cluster, config: LinkConfig) -> None:
        self.node = node
        self.bell = Bell()
        """Rung when there may be something to do."""
        self._cluster = cluster
        self._settings = config

    async def run(self) -> None:
        """Connect whenever there is something to do, until cancelled."""
        while True:
            while not self._has_work():
                await self.bell.wait()
            try:
                pipeline = await self._connect()
                try:
                    await self._serve(pipeline)
                finally:
                    await pipeline.aclose()
            except* (ConnectionLostError, ProtocolError, RefusedError) as group:
                # Several tasks may find out at once; one reason is enough.
                self._lose(_first_of(group))
            await trio.sleep(self._settings.retry_backoff_ms / 1_000)

    @abstractmethod
    def _has_work(self) -> bool:
        """Return whether a connection is wanted now."""

    @abstractmethod
    async def _serve(self, pipeline: Pipeline) -> None:
        """Work on an open connection until it is lost: only an error ends it."""

    @abstractmethod
    def _lose(self, why: Loss) -> None:
        """Take note that the connection is lost, or could not be had."""

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
