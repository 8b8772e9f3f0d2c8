"""Connection from this broker to one other broker, opened when it is needed.

Coordinators and partition leaders exchange requests over such connections. The connections go to
the inter-broker listener, and use the login and TLS settings of the current task. Each connection
names the expected broker and cluster. If another broker has taken over the address, it therefore
refuses the connection (KIP-1242).
"""

from collections.abc import Callable
from contextvars import ContextVar

import trio

from ottla.client.network.broker_versions import ExpectedNode
from ottla.client.network.connection import BrokerConnection, ConnectionLostError, connect
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig
from ottla.node.network.loopback_driver import Loopback

CONNECT_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 1.0

OWN_CLUSTER: ContextVar[str | None] = ContextVar("own_cluster", default=None)
"""Id of the cluster whose broker runs the current task, or None if the task belongs to no
broker."""


def expected_peer(node_id: NodeId) -> ExpectedNode | None:
    """Return the identity that the peer of a connection to another broker must have. Returns None
    if the current task belongs to no broker."""
    cluster_id = OWN_CLUSTER.get()
    return None if cluster_id is None else ExpectedNode(cluster_id, node_id)


class PeerConnection:
    """Connection to one other broker. If it was closed, the next use opens it again."""

    def __init__(
        self,
        node_id: NodeId,
        config: BrokerConfig,
        image: Callable[[], MetadataImage],
        *,
        purpose: str,
        own: Loopback | None = None,
    ) -> None:
        """Create a connection to another broker, which is closed at first. `purpose` is the last
        part of the connection's client id. If `node_id` is this broker, requests use the loopback
        `own` and no connection."""
        self.node_id = node_id
        self._config = config
        self._image = image
        self._purpose = purpose
        self._own = own
        self._connection: BrokerConnection | None = None

    async def connected(self) -> BrokerConnection | Loopback:
        """Return the open connection to the other broker. If it is closed, open it first.

        Raises RefusedError(COORDINATOR_NOT_AVAILABLE) if the metadata has no address of the broker,
        and the errors of opening a connection.
        """
        if self._own is not None:
            return self._own
        if self._connection is None:
            self._connection = await self._connect()
        return self._connection

    async def _connect(self) -> BrokerConnection:
        broker = self._image().brokers.get(self.node_id)
        name = self._config.inter_broker_listener
        endpoint = None if broker is None else broker.endpoint(name)
        if endpoint is None:
            raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        client_id = f"broker-{self._config.node_id}-{self._purpose}"
        try:
            return await connect(
                endpoint.host,
                endpoint.port,
                client_id=client_id,
                timeout_s=CONNECT_TIMEOUT_S,
                expected=expected_peer(self.node_id),
            )
        except RefusedError as refusal:
            # The reason why this broker's authentication failed at another broker is not a client's
            # business.
            raise ConnectionLostError(str(refusal)) from refusal

    async def close(self) -> None:
        """Close the connection to the other broker, if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with trio.move_on_after(CLOSE_TIMEOUT_S) as patience:
                patience.shield = True
                await connection.aclose()
