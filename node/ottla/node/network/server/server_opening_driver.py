"""Opens the socket server for the duration of a block.

Separate from `server_driver`, which is compiled: the compiler does not support asynchronous
generators.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from ottla.model.errors import ConfigError
from ottla.model.seams import Clock
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.listener import Listener
from ottla.node.network.server.hosting_driver import REQUEST_MEMORY_BYTES_MAX
from ottla.node.network.server.server_driver import SocketServer
from ottla.node.network.server.server_seam import Admission, AdmitAll
from ottla.storage.disk.disk_seam import Disk


@asynccontextmanager
async def open_socket_server(
    listeners: Sequence[Listener],
    dispatcher: Dispatcher,
    *,
    clock: Clock,
    disk: Disk,
    limits: ConnectionLimits | None = None,
    request_memory_bytes_max: int = REQUEST_MEMORY_BYTES_MAX,
    idle_ms_max: int = 600_000,
    admission: Admission | None = None,
    backlog: int = 50,
    kind: Callable[..., SocketServer] = SocketServer,
) -> AsyncIterator[SocketServer]:
    """Open the listeners of a node, and serve clients while the block runs. Yields the server.

    `kind` is the function that creates the server. It may return a subclass of SocketServer that
    injects faults or passes connections on. Raises OSError if a listener cannot be opened.
    """
    async with trio.open_nursery() as nursery:
        server = kind(
            dispatcher,
            clock=clock,
            disk=disk,
            limits=limits,
            request_memory_bytes_max=request_memory_bytes_max,
            idle_ms_max=idle_ms_max,
            admission=admission or AdmitAll(),
            nursery=nursery,
        )
        try:
            for listener in listeners:
                server.listen(listener, backlog)
            async with trio.open_nursery() as loop:
                loop.start_soon(server.run)
                yield server
                loop.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
        finally:
            # After the event loop, which waits on the epoll, has ended.
            server.close()


def cannot_open(addresses: str, error: OSError) -> ConfigError:
    """Return the error for a node whose listeners cannot be opened."""
    reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
    return ConfigError("listeners", f"{addresses} cannot be opened ({reason}); choose another port")
