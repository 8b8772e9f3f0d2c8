"""Interface to the server behind a controller's listeners. Pure.

It has two implementations: `open_front` (front_opening_driver.py) uses sockets. The simulation
serves remote procedures at the listener's address itself.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from ottla.model.seams import Clock
from ottla.model.settings.security.tls import TlsConfig
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.listener import Listener
from ottla.node.network.server.server_seam import Admission, Server
from ottla.rpc.method import MethodHandler
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.disk.disk_seam import Disk


class ListenerService(NamedTuple):
    """One listener of a controller, with its services for both protocols (gRPC and Kafka's)."""

    listener: Listener
    """Address of the listener, and the TLS settings for Kafka's clients."""
    handlers: Sequence[MethodHandler[Any, Any]]
    """Handlers of the gRPC methods that nodes call."""
    node_tls: TlsConfig | None
    """TLS settings for the connections of nodes; None if these connections are not encrypted."""


class OpenFront(Protocol):
    """Interface of a function that opens the listeners of a controller. Raises ConfigError if an
    address cannot be opened."""

    def __call__(
        self,
        services: Sequence[ListenerService],
        dispatcher: Dispatcher,
        /,
        *,
        rpc: Rpc,
        clock: Clock,
        disk: Disk,
        limits: ConnectionLimits | None = None,
        admission: Admission | None = None,
    ) -> AbstractAsyncContextManager[Server | None]:
        """Return a context manager that opens the listeners and serves while its block runs.
        Clients' requests are served by the dispatcher. The yielded server is None if there are no
        clients."""
        ...
